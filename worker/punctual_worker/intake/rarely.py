"""Keeps rarely needed expressions out of the code that Spark generates for every record.

The JVM does not compile methods beyond 8,000 bytes of bytecode, and the expressions for faults,
sentences and odd spellings are far larger than those a good request needs: left in the generated
code they slow down every record by half. A higher-order function is evaluated outside of it.
"""

from pyspark.sql import Column
from pyspark.sql import functions as sf


def rarely(value: Column) -> Column:
    """The same value, interpreted; for use inside a branch that is seldom taken."""
    return sf.element_at(sf.transform(sf.array(sf.lit(1)), lambda _: value), 1)
