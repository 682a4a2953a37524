"""The command line: ``gdm``."""
