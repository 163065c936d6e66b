"""The arbiter's ledger as the daemon reads it, by its control socket (src/wire/arbiter.h).

    usage()     [Entry(job, uuid, limit, charged, granted, denied, processes)], one for each task and GPU
"""

import collections
import socket
import struct

ARBITER = "/run/tranche/arbiter.sock"
HEADER = struct.Struct("=IHHQ")  # size, version, kind, id
ENTRY = struct.Struct("=IHHQ QII 16s QQQQ I")  # header, key, uuid, the figures; newer fields follow
USAGE, REPLY, USAGE_ENTRY = 4, 64, 65

Entry = collections.namedtuple("Entry", "job uuid limit charged granted denied processes")


def usage(path=ARBITER):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.send(HEADER.pack(HEADER.size, 1, USAGE, 1))
        entries = []
        while True:
            packet = connection.recv(8192)
            if not packet:
                raise ConnectionError("the arbiter hung up")
            kind = HEADER.unpack_from(packet)[2]
            if kind == REPLY:
                return entries
            if kind == USAGE_ENTRY:
                fields = ENTRY.unpack_from(packet)
                entries.append(Entry(fields[4], fields[7].hex(), *fields[8:12], fields[12]))
