"""The commands of `punctual`, a module per group. Heavy imports stay inside the commands."""
