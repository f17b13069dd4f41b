"""For tests, benchmarks and examples: MySQL servers, replica pairs, a Kafka broker, a schema registry, object stores
(S3, Azure and GCS), a Spark cluster, axe-core for pages, a network proxy with faults, a store that loses answers, what
a loss of power leaves, and waiting. It is not in the wheel. docs/architecture/testing.md describes the modules.
"""

from headgate_testing._axe import axe_script
from headgate_testing._blob_store import BlobStore
from headgate_testing._gcs_store import GcsStore
from headgate_testing._jars import s3_jars
from headgate_testing._kafka import KafkaBroker
from headgate_testing._lossy_store import Loss, LossyStore
from headgate_testing._mysql_program import URL_VARIABLE, installed_program, private_program
from headgate_testing._mysql_server import UNLOGGED_CASCADES, MySQLServer, replica_pair
from headgate_testing._object_store import ObjectStore
from headgate_testing._power import PowerLoss
from headgate_testing._proxy import Proxy
from headgate_testing._schema_registry import RegistryServer
from headgate_testing._spark_cluster import SparkCluster
from headgate_testing._waiting import pass_time, wait_until

__all__ = [
    "UNLOGGED_CASCADES",
    "URL_VARIABLE",
    "BlobStore",
    "GcsStore",
    "KafkaBroker",
    "Loss",
    "LossyStore",
    "MySQLServer",
    "ObjectStore",
    "PowerLoss",
    "Proxy",
    "RegistryServer",
    "SparkCluster",
    "axe_script",
    "installed_program",
    "pass_time",
    "private_program",
    "replica_pair",
    "s3_jars",
    "wait_until",
]
