"""The root of errors that are meant for the person at the command line."""


class PunctualError(Exception):
    """Something outside the program is not as it must be; the message is a whole sentence.

    The command line prints the message alone, without a traceback, and exits with status 2.
    """
