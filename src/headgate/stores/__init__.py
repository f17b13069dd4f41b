"""Folders on this machine and in object stores (S3, GCS, Azure), by one interface with put-if-absent.

A *folder* is a path or a URI. :func:`folder_of` returns what reads, writes, lists and removes the files in it. Paths of
this machine use the operating system, URIs obstore. Other URIs than those of S3, GCS and Azure are refused
(:func:`check_scheme`).
"""

from headgate.stores._access import (
    VARIABLE,
    check_bucket,
    check_scheme,
    has_credentials,
    is_remote,
    share_credentials,
    store_errors,
)
from headgate.stores._folder import FileIdentity, Folder, Listed, folder_of
from headgate.stores._requests import COUNTS_VARIABLE, Operation, RequestCounts, read_counts, shared_counts

__all__ = [
    "COUNTS_VARIABLE",
    "VARIABLE",
    "FileIdentity",
    "Folder",
    "Listed",
    "Operation",
    "RequestCounts",
    "check_bucket",
    "check_scheme",
    "folder_of",
    "has_credentials",
    "is_remote",
    "read_counts",
    "share_credentials",
    "shared_counts",
    "store_errors",
]
