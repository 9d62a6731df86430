# make test needs Go. As root on Debian it installs the programs that tests run (internal/needs/packages); elsewhere the tests
# that lack one are skipped by name. The race detector needs a C compiler, and is left out where there is none.

GO ?= go
compiler = $(shell command -v gcc)
race = $(if $(compiler),-race)
export CGO_ENABLED = $(if $(compiler),1,0)

# Property tests draw their examples from the commit: a run that was green is green again, and each commit tries others.
# "make properties" draws at random, and many more.
ifndef RAPID_SEED
RAPID_SEED := $(shell printf '%d' 0x$$(git rev-parse --short=12 HEAD 2>/dev/null || echo 1))
endif
export RAPID_SEED

.PHONY: dev build dist test test-long properties race lint bench faults packages

dev:
	$(GO) run ./cmd/souk dev

# "souk version" says the commit, also where GOFLAGS asks for none, as some hosts do; without git, or in another user's checkout,
# there is none to be had.
vcs = -buildvcs=$(shell git status > /dev/null 2>&1 && echo auto || echo false)

build:
	$(GO) build $(vcs) -o bin/souk ./cmd/souk

# What is released: archives and .deb of amd64 and arm64, the install script, checksums. A release is made at its tag.
dist:
	GO="$(GO)" packaging/dist

# Packages that start no goroutine, and whose tests compute for long: the race detector would find nothing there and take
# six times as long, so it is left out for them (and for them alone; a test of the root sees to it that they start none).
ALONE = . core/rollout sim sim/... core/lifecycle core/decision core/scheduler/mincost
alone = $(shell $(GO) list $(addprefix ./,$(ALONE)))

# Scripts run souk as users do, hundreds of times, and with the race detector each start of it costs as much as what it
# does. So here they are without it; "make race" has it for them too. What souk is made of is tested with it below, and
# whole members of it in test/testcluster.
SCRIPTS = cmd/souk packaging
scripts = $(shell $(GO) list $(addprefix ./,$(SCRIPTS)))

# Tests that kill for minutes, draw many seeds, or compile anew have names that begin with TestLong. "make test" leaves
# them out, and "make test-long" runs nothing else. CONTRIBUTING.md says which short test stands for each.
all = $(shell $(GO) list ./...)
long = $(shell $(GO) list $$(grep -rl '^func TestLong' --include='*_test.go' . | xargs -n 1 dirname | sort -u))

# Most tests wait more than they compute, so twice as many packages are tested at once as there are processors, and of
# each as many tests.
twice := $(shell echo $$((2 * $$(nproc))))
atonce = -p $(twice) -parallel $(twice)

# A part of the tests, $(1) its name, $(2) its packages, $(3) flags of go test. What fails is run again, twice at most and
# not when more than eight tests failed; what passes only then is printed at the end as flaky, with its first output.
# The timeout is for a test that hangs, not for a slow machine.
gotestsum = $(CURDIR)/bin/gotestsum
events = $(CURDIR)/bin/events
check = $(gotestsum) --format pkgname --format-icons text --hide-summary skipped --jsonfile $(events)/$(1).json \
	--rerun-fails=2 --rerun-fails-max-failures=8 --rerun-fails-run-root-test --packages "$(2)" -- -timeout 25m $(3)

# A tier of the tests: $(1) its name, $(2) its packages, $(3) flags of go test, $(4) what else is run. The scripts run
# beside the rest.
tier = mkdir -p $(events); rm -f $(events)/$(1)-*.json; code=0; \
	$(call check,$(1)-scripts,$(filter $(scripts),$(2)),$(3)) > bin/scripts.log 2>&1 & scripts=$$!; \
	$(call check,$(1)-alone,$(filter $(alone),$(2)),$(3)) || code=1; \
	$(call check,$(1)-race,$(filter-out $(scripts) $(alone),$(2)),$(3) $(race)) || code=1; \
	$(4) wait $$scripts || code=1; cat bin/scripts.log; \
	$(GO) run ./internal/flaky bin/flaky$(filter -long,-$(1)).txt $(events)/$(1)-*.json; exit $$code

short = -skip '^TestLong' $(atonce)
test: packages bin/gotestsum
	$(GO) vet $(race) ./...
	@$(call tier,test,$(all),$(short),\
		(cd test/conformance && $(GO) vet $(race) ./... && $(call check,test-conformance,./...,$(short) $(race))) || code=1;)

test-long: packages bin/gotestsum
	@$(call tier,long,$(long),-run '^TestLong' $(atonce))

# Built from its own module, like the linter.
bin/gotestsum: tools/go.mod
	cd tools && $(GO) build -o ../bin/gotestsum gotest.tools/gotestsum

CHECKS ?= 2000
properties: packages
	RAPID_SEED=0 RAPID_CHECKS=$(CHECKS) $(GO) test -count 1 -timeout 60m $(short) \
		$$(grep -rl pgregory.net/rapid --include='*_test.go' . | xargs -n 1 dirname | sort -u)

race: packages
	$(GO) test -race -timeout 60m $(short) $(scripts)

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
	$(GO) run ./test/faultrun --fault $(FAULTS) --runs $(RUNS) --for $(FOR) --rate 20 --services 2 --jobs 10 --parallel 3 --results bin/fault-runs; \
		code=$$?; $(GO) run ./test/faultrun --report bin/fault-runs > docs/results-faults.md; exit $$code

# What tests run and a bare Debian lacks. INSTALL=no installs none of it.
packages:
	@internal/needs/install
