#!/usr/bin/env bash
# Linux 6.18: what it takes to read which sockets listen in /proc/net/tcp.
#
# Guessed: the kernel lists those that listen first, so a reader that stops at the first that does not pays for them alone.
# Seen:    a host with a handful of connections takes ms for it, and for each of tcp and tcp6. The read that comes to the end of
#          the listeners goes on to the table of all connections, and walks over its places until its page is full:
#          cat /proc/sys/net/ipv4/tcp_ehash_entries says how many there are (262,144 with 23 GB of memory). That table is one
#          for all network namespaces, so a container's is as slow.
#
# What follows: ask over NETLINK_SOCK_DIAG for the state "listen" alone, and for the port, which takes 0.04 ms; ss(8) does the same.
#
# Needs Python 3. Fails when what is seen changes.
set -euo pipefail
python3 - <<'PY' | tee /dev/stderr | grep -q "at least 10 times: True"
import socket, struct, time, statistics

def table():
    for kind in ("tcp", "tcp6"):
        with open("/proc/net/" + kind, "rb", buffering=4096) as f:
            f.readline()
            for line in f:
                if line.split()[3] != b"0A":
                    break

def diag():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4)
    for family in (socket.AF_INET, socket.AF_INET6):
        body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 1 << 10) + bytes(48)
        s.send(struct.pack("=IHHII", 16 + len(body), 20, 0x301, 1, 0) + body)
        done = False
        while not done:
            b = s.recv(1 << 16)
            while b:
                n, kind = struct.unpack_from("=IH", b)
                done = done or kind in (2, 3)  # an error, the end
                b = b[(n + 3) & ~3:]
    s.close()

def median(f):
    took = []
    for _ in range(51):
        begin = time.perf_counter()
        f()
        took.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(took)

slow, fast = median(table), median(diag)
print("/proc/net/tcp and tcp6 %.2f ms, sock_diag %.2f ms, at least 10 times: %s" % (slow, fast, slow > 10 * fast))
PY
echo "as it was seen"
