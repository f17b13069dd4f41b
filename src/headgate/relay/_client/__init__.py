"""Consumers in Python.

==============  ==================================================================
``_consumer``   a consumer: callbacks and what they answer
``_callbacks``  consumers called one by one or side by side
``_retry``      how failures are met
``_transport``  requests to a relay, or to one of several
``_client``     from a relay to callbacks: back-off, checkpoints, switching relays
``_bootstrap``  rows first
``_member``     a consumer as member of a group
==============  ==================================================================
"""
