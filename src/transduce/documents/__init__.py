"""Documents of other programs, translated in place. To add a format, add its reader to the table in read.py."""
