"""Problems that are described in a file (``tacit solve``).

job             a job file and its data as a problem and settings
"""
