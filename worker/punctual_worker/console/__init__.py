"""The console: what is pending, why something was rejected, and a hand on it.

`rows`, `payloads` and `requests` are pure. `schema`, `view` and `queries` hold the local database,
`following`, `checkpoints` and `records` read Kafka, `writes` and `bulk` produce requests; `api` and
`pages` are HTTP on top. Nothing here is durable: everything is read again from the log.
"""
