"""For tests, demonstrations and the curious: MySQL servers, replica pairs, a Kafka broker, a network to be broken."""

from headgate.testing._flights import FLIGHT_TABLES, FlightWriters, load_flights
from headgate.testing._kafka import KafkaBroker
from headgate.testing._private import private_program
from headgate.testing._proxy import Proxy
from headgate.testing._server import URL_VARIABLE, MySQLServer, replica_pair

__all__ = [
    "FLIGHT_TABLES",
    "URL_VARIABLE",
    "FlightWriters",
    "KafkaBroker",
    "MySQLServer",
    "Proxy",
    "load_flights",
    "private_program",
    "replica_pair",
]
