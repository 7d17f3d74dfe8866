"""Batch jobs on Spark: work over everything that is in the topics. Nothing here serves."""
