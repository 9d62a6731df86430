# make test needs Go, and a C compiler for the race detector; as root on Debian it installs the compiler by itself.

GO ?= go
export CGO_ENABLED = 1

.PHONY: dev build dist test lint bench faults compiler

dev:
	$(GO) run ./cmd/souk dev

build:
	$(GO) build -o bin/souk ./cmd/souk

# What is released: archives and .deb of amd64 and arm64, the install script, checksums. A release is made at its tag.
dist:
	GO="$(GO)" packaging/dist

# Packages that start no goroutine, and whose tests compute for long: the race detector would find nothing there and take
# six times as long, so it is left out for them (and for them alone; a test of the root sees to it that they start none).
ALONE = . sim sim/... lifecycle decision scheduler/mincost
alone = $(addprefix ./,$(ALONE))

# Many tests wait more than they compute, so more of them run at once than there are processors.
test: compiler
	$(GO) vet -race ./...
	$(GO) test -race -timeout 15m -p $$(($$(nproc) * 3 / 2)) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(alone))")
	$(GO) test -timeout 15m $(alone)
	cd conformance && $(GO) vet -race ./... && $(GO) test -race -timeout 15m ./...

lint:
	cd tools && $(GO) build -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run

bench:
	$(GO) run ./cmd/souk bench launch

# Twenty runs of each way to break a cluster of real agents, with random seeds: more than an hour, as root, with iproute2, nftables
# and iptables. FAULTS, RUNS and FOR choose less. What came of them is appended to bin/fault-runs, where a campaign that was broken
# off goes on, and the document made anew.
FAULTS ?= all
RUNS ?= 20
FOR ?= 8s,partition=60s,stall=60s,diskfull=60s
faults:
	@mkdir -p bin
	$(GO) run ./testcluster/faultrun --fault $(FAULTS) --runs $(RUNS) --for $(FOR) --rate 20 --parallel 3 --results bin/fault-runs; \
		code=$$?; $(GO) run ./testcluster/faultrun --report bin/fault-runs > docs/results-faults.md; exit $$code

compiler:
	@if ! command -v gcc > /dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
			apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends gcc libc6-dev; \
		else \
			echo "the race detector needs a C compiler: install gcc (Debian: apt-get install gcc libc6-dev)" >&2; exit 1; \
		fi; \
	fi
