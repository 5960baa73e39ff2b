"""The commands of the applications."""
