"""The API as Python sees it: spec, status, conditions and names. Pure."""
