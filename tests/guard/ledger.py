"""The arbiter's ledger as the daemon reads it, by its control socket (src/wire/arbiter.h).

    usage()     [Entry(job, uuid, limit, charged, granted, denied, processes)], one for each task and GPU
"""

import collections
import socket
import struct

ARBITER = "/run/tranche/arbiter.sock"
HEADER = struct.Struct("=IHHQ")  # size, version, kind, id
REQUEST = struct.Struct("=IHHQ QII II")  # header, the task and GPU after which the page begins
ENTRY = struct.Struct("=IHHQ QII 16s QQQQ II")  # header, key, uuid, the figures, place; newer fields follow
USAGE, REPLY, USAGE_ENTRY, PAGE = 4, 64, 65, 64

Entry = collections.namedtuple("Entry", "job uuid limit charged granted denied processes")


def usage(path=ARBITER):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(path)
        entries, after, full = [], (0, 0, 0, 0), True
        while full:
            connection.send(REQUEST.pack(REQUEST.size, 1, USAGE, 1, *after, 0))
            page = list(read_page(connection))
            entries += [Entry(fields[4], fields[7].hex(), *fields[8:12], fields[12]) for fields in page]
            full = len(page) == PAGE
            after = (*page[-1][4:7], page[-1][13]) if full else after
        return entries


def read_page(connection):
    while True:
        packet = connection.recv(8192)
        if not packet:
            raise ConnectionError("the arbiter hung up")
        kind = HEADER.unpack_from(packet)[2]
        if kind == REPLY:
            return
        if kind == USAGE_ENTRY:
            yield ENTRY.unpack_from(packet)
