"""Intake: requests are read, checked, put in normal form and routed, by Spark expressions alone."""
