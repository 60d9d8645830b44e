"""`images.resize`: pictures, decoded where a decoder's bug can't hurt the host.

header      format and size, read from the first bytes in plain Python
worker      the program that decodes, in a process that confines itself first
process     starting a worker, feeding it, ending it at the deadline
capability  the call
"""
