"""The dispatcher: takes actions in, keeps the timetable, delivers on time, exactly once.

`checkpoint`, `entries`, `timetable` and `restoring` are pure: they decide. `store` (RocksDB) and
`log` (Kafka) are the only modules that touch the outside; `turn` and `loop` put both together.
docs/design.md explains the protocol; tests/simulation drives the pure modules through failures.
"""
