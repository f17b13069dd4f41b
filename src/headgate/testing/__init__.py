"""For tests and demonstrations: MySQL servers, replica pairs, a Kafka broker, a schema registry, object stores (S3 and
Azure), a Spark cluster, a network proxy with faults, a store that loses answers, what a loss of power
leaves, the tables of the demonstration, and waiting. docs/architecture/testing.md describes the modules.
"""

from headgate.testing._blob_store import BlobStore
from headgate.testing._flights import FLIGHT_TABLES, FlightWriters, load_flights
from headgate.testing._jars import s3_jars
from headgate.testing._kafka import KafkaBroker
from headgate.testing._lossy_store import Loss, LossyStore
from headgate.testing._mysql_program import URL_VARIABLE, installed_program, private_program
from headgate.testing._mysql_server import UNLOGGED_CASCADES, MySQLServer, replica_pair
from headgate.testing._object_store import ObjectStore
from headgate.testing._power import PowerLoss
from headgate.testing._proxy import Proxy
from headgate.testing._schema_registry import RegistryServer
from headgate.testing._spark_cluster import SparkCluster
from headgate.testing._waiting import pass_time, wait_until

__all__ = [
    "FLIGHT_TABLES",
    "UNLOGGED_CASCADES",
    "URL_VARIABLE",
    "BlobStore",
    "FlightWriters",
    "KafkaBroker",
    "Loss",
    "LossyStore",
    "MySQLServer",
    "ObjectStore",
    "PowerLoss",
    "Proxy",
    "RegistryServer",
    "SparkCluster",
    "installed_program",
    "load_flights",
    "pass_time",
    "private_program",
    "replica_pair",
    "s3_jars",
    "wait_until",
]
