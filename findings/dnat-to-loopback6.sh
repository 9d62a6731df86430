#!/usr/bin/env bash
# Linux 6.18: whether a connection from another device is led to ::1 by DNAT.
#
# Guessed: it is, since a packet for ::1 is dropped where it arrives (ip6_rcv), before rules change its destination. By IPv4
#          127.0.0.1 is reached so, with route_localnet.
# Seen:    it is not. The route to a loopback address is looked for at the device by which the packet came (rt6_need_strict
#          in net/ipv6/route.c), and the client is told that there is none. Another address of the device lo is reached.
#
# What follows: a server for what comes from containers has an address of its own at lo.
#
# Needs root, ip, nft and busybox. Fails when what is seen changes.
set -euo pipefail
in=dnat6-in-$$ host=dnat6-host-$$ servers=()
trap 'kill "${servers[@]}" 2> /dev/null; ip netns del "$in"; ip netns del "$host"' EXIT
ip netns add "$in"
ip netns add "$host"
ip -n "$host" link add v type veth peer name v netns "$in"
for n in "$in" "$host"; do
	ip -n "$n" link set lo up
	ip -n "$n" link set v up
done
ip -n "$host" addr add fd00:1::1/64 dev v nodad
ip -n "$in" addr add fd00:1::2/64 dev v nodad
ip -n "$in" route add fd00:2::/64 via fd00:1::1
ip -n "$host" addr add fd00:3::1/128 dev lo nodad
ip netns exec "$host" nft -f - <<'RULES'
table ip6 t {
	chain c {
		type nat hook prerouting priority dstnat
		ip6 daddr fd00:2::1 tcp dport 80 dnat to [::1]:80
		ip6 daddr fd00:2::2 tcp dport 80 dnat to [fd00:3::1]:80
	}
}
RULES
ip netns exec "$host" busybox httpd -f -p 80 &
servers+=($!)
reached() { ip netns exec "$in" timeout 2 bash -c "exec 3<> /dev/tcp/$1/80" 2> /dev/null; }
for _ in {1..200}; do # until it listens
	reached fd00:1::1 && break
done
for at in fd00:1::1 fd00:2::2 fd00:2::1; do
	if reached $at; then echo "$at reached"; else echo "$at not reached"; fi
done | diff - <(printf 'fd00:1::1 reached\nfd00:2::2 reached\nfd00:2::1 not reached\n')
echo "as it was seen"
