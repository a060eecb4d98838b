"""The event store on Apache Cassandra.

Each operation is one statement, or one logged batch over tables that share its partition key; operations of one call
go out together. Every timestamp is ours (R13), every conditional statement runs at LOCAL_SERIAL (R16), nothing is
retried blindly.
"""
