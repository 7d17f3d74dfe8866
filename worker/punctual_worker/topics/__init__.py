"""The topics of an app id: `plan` decides what to change, `admin` asks and changes."""
