# make run    builds ncpu and shows where two real workloads' CPU time went
# make test   runs every test on this machine, make test-quiet those alone that need a machine left alone, make test-vm those
#             of a machine with 8 NUMA nodes
# README.md has the rest

PREFIX ?= /usr/local
CARGO ?= cargo
NCPU := target/release/ncpu
# What `ncpu fleet` executes.
FLEET := target/release/ncpu-fleet
# What `ncpu serve` starts.
SERVE := target/release/ncpu-serve
PAGE := web/serve/dist/index.html
# Expanded by the shell, when they are built.
PRELOADS := target/release/libncpu_*.so
FDTORTURE := target/workloads/fdtorture
LOGGER := target/workloads/logger
# Observing the kernel needs root; building does not.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: docs prose release rpm deb tarball test-packages all build web page static static-guest run test test-quiet test-repeat cases test-python wheel test-vm test-web test-deep fuzz transcripts bench bench-primitives bench-timers foresee-check man completions coverage mutants check-aarch64 static-arm64 test-vm-arm64 kernels
.PHONY: install install-lib clean tools test-tools vm-tools schema
all: build man completions

build: tools page
	$(CARGO) build --release --locked

# The page of `ncpu serve`, which is built into ncpu-serve: by Node, from the versions in package-lock.json.
web: $(PAGE)
$(PAGE): $(wildcard web/page.css web/shared/*.js web/serve/*.html web/serve/*.ts web/serve/*.json web/serve/src/*)
	@command -v npm >/dev/null || { echo "make: the page of ncpu serve, which packages have, needs Node 20 or later (npm): https://nodejs.org" >&2; exit 1; }
	cd web/serve && npm ci --no-audit --no-fund && npm run build

# The same where there is Node; ncpu-serve answers without it too.
page:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web || \
		echo "make: npm could not build the page of ncpu serve: it is left out"; \
	else echo "make: no Node (npm): the page of ncpu serve is left out"; fi

# Without shared libraries, to be copied to any machine. Only the last step differs: what ncpu depends on is built once.
# The libraries of `ncpu preload` come along, it finds them beside itself, and `ncpu-fleet`, which loads engines and so
# needs shared libraries.
static: static-guest page
	$(CARGO) build --release --locked -p ncpu-fleet --bin ncpu-fleet
	install $(FLEET) target/static
	$(call statically,ncpu-serve)

# Builds one program without shared libraries into target/static; target/release keeps the one that was there, or none.
define statically
	mkdir -p target/static
	rm -f target/static/.shared-$(1)
	[ ! -e target/release/$(1) ] || cp -p target/release/$(1) target/static/.shared-$(1)
	built=0; $(CARGO) rustc --release --locked -p $(1) --bin $(1) -- -C target-feature=+crt-static && \
		install target/release/$(1) target/static/$(1) || built=$$?; \
	rm -f target/release/$(1); \
	[ ! -e target/static/.shared-$(1) ] || mv target/static/.shared-$(1) target/release/$(1); \
	exit $$built
endef

# What the guests' tests need of it.
static-guest: tools
	$(call statically,ncpu)
	$(CARGO) build --release --locked -p 'ncpu-preload-*'
	install -m 644 $(PRELOADS) target/static

# The workload's sources are found as the user, since root's PATH may have no cargo.
run: build $(FDTORTURE)
	@[ -z "$(SUDO)" ] || command -v sudo >/dev/null || \
		{ echo "make run: observing the kernel needs root, and there is no sudo: run it as root" >&2; exit 1; }
	$(SUDO) $(NCPU) run -- workloads/build.sh -s "$$(workloads/build.sh -l)"
	$(SUDO) $(NCPU) run -- $(FDTORTURE) 4 5

# docs/schema.md, of the tables that crates/keep/schema declares.
schema:
	BLESS=1 $(CARGO) test --locked -q -p ncpu-schema --test document

# The manual as a book that can be searched: target/book/index.html.
docs:
	docs/build

# The prose of the documents, the help and the messages; PROSE="docs/run.md crates/see/lines/src" looks at other files.
prose:
	$(CARGO) test --locked -q -p ncpu-trials --test prose -- --nocapture

test: tools test-tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	CARGO="$(CARGO)" .ci/test
	web/test || [ $$? = 77 ]

# The page's tests, in TypeScript; those of the server are in crates/show/serve.
test-web:
	web/test

# The tests of known answers, one after another with nothing beside; `make test` runs them last.
test-quiet: tools test-tools
	CARGO="$(CARGO)" .ci/test quiet

# The same N times: fails where one of them fails more often than 3 times in 100.
N ?= 10
test-repeat: tools test-tools
	CARGO="$(CARGO)" .ci/test repeat $(N)

# The module in Python; what it needs comes by pip.
test-python:
	$(CARGO) build --locked -p ncpu
	python/test

# target/wheels/ncpu-*.whl: the command, the libraries of `ncpu preload`, and the module.
wheel: static
	python/wheel

# target/debian/*.deb, by cargo-deb. Packages have the page of ncpu serve.
deb: web all
	packages/deb

# target/ncpu-VERSION-ARCH-linux.tar.gz: programs that need no libraries, and what belongs to them.
tarball: web static man completions
	packages/tarball

# target/rpm/ncpu-*.rpm, of the archive's programs.
rpm: tarball
	packages/rpm

# All files of a release in target/dist, from a clean clone of HEAD: docs/versions.md. TWICE=1 builds twice and compares; NCPU_SIGN_KEY
# names the key of gpg that signs.
release:
	packages/release $(if $(TWICE),--twice)

# The packages and the wheel, installed and used on a Debian 12 with nothing else.
test-packages: deb tarball wheel
	tests/packages/run

# Programs whose cause is known, each run under ncpu: what it says first, beside the truth. CASES="timezone --rounds 3" and the like choose.
cases: build
	$(SUDO) tests/cases/run $(CASES)

# The guests' CPUs are emulated: what runs there is optimised.
test-vm: static-guest vm-tools
	tests/vm/run

bench: build $(FDTORTURE)
	@for bench in benches/*.sh; do \
		[ -x "$$bench" ] || continue; echo "== $$bench"; "$$bench" || exit; done

# libncpu's primitives beside their peers, in one run; BENCH="--group mutex --outside 0,200" and the like choose.
bench-primitives: tools
	$(CARGO) bench --locked -p libncpu --bench primitives -- $(BENCH)

# How late libncpu's timers are, a million of them at once, and what a stack bias gives.
bench-timers: tools
	$(CARGO) bench --locked -p libncpu --bench timers
	$(CARGO) bench --locked -p libncpu --bench stacks

# libncpu under many more schedules, under sanitizers and under Miri where a nightly Rust has them.
test-deep: tools
	crates/fix/libncpu/deep.sh

# Compares predictions with published curves and measurements; fails if they are worse than docs/foresee.md claims.
foresee-check:
	$(CARGO) build --release --locked -p ncpu-foresee-check
	target/release/foresee-check documents
	target/release/foresee-check curves crates/foresee/foresee-check/sets

# Which lines and branches the tests execute, by crate; CRATES="table record" looks at these alone. Builds all anew in target/coverage.
CRATES ?=
coverage: tools test-tools
	CARGO="$(CARGO)" .ci/coverage $(CRATES)

# Mutation tests of a part of a crate: changes of its code that no test notices. MUTANTS="--file crates/fix/dump/src/read.rs" and
# MUTANTS="--re Table::possible" choose others (then SHARD=0/1). CONTRIBUTING.md has the rates.
CRATE ?= schema
SHARD ?= 0/4
mutants: tools
	@command -v cargo-mutants >/dev/null || { echo "make mutants: cargo install cargo-mutants --version 27.1.0 --locked" >&2; exit 1; }
	mkdir -p target/mutants/$(CRATE)
	CARGO_TARGET_DIR=$(CURDIR)/target/mutants/built $(CARGO) mutants -p ncpu-$(CRATE) --shard $(SHARD) --sharding round-robin \
		--timeout 60 --output target/mutants/$(CRATE) $(MUTANTS) -- --lib --tests

# target/static-arm64/ncpu, of the development profile without debug information: to be copied to a machine of AArch64, and what
# the guests' tests need.
static-arm64:
	CARGO="$(CARGO)" .ci/aarch64 static

# The guests' cases on emulated CPUs of AArch64.
test-vm-arm64: static-arm64 vm-tools
	@.ci/tools qemu-system-arm gcc-aarch64-linux-gnu
	NCPU_VM_ARCH=arm64 tests/vm/run

# What each kernel gives: docs/kernels.md.
kernels: static-guest vm-tools
	tests/vm/kernels

# That everything compiles for AArch64.
check-aarch64: tools
	CARGO="$(CARGO)" .ci/aarch64

# Parsers with made-up input, each for FUZZ_SECONDS; fuzz/README.md has more.
fuzz: tools
	fuzz/run

# The transcripts of README.md and docs/, from real runs on this machine, which should have nothing else to do.
transcripts: build $(FDTORTURE) $(LOGGER)
	docs/transcripts
	docs/picture README.md 'ncpu run -- logger 4 5' >docs/images/run.svg

man: build
	$(NCPU) man target/man

completions: build
	mkdir -p target/completions
	for shell in bash zsh fish; do \
		$(NCPU) completions $$shell >target/completions/ncpu.$$shell || exit; done

# Nothing is built here: this may be root, and `make` was not.
install:
	@[ -x $(NCPU) ] && [ -x $(FLEET) ] && [ -x $(SERVE) ] && [ -d target/man ] && [ -d target/completions ] || \
		{ echo "make install: run make first, as the user who builds" >&2; exit 1; }
	install -D $(NCPU) $(DESTDIR)$(PREFIX)/bin/ncpu
	install -D $(FLEET) $(DESTDIR)$(PREFIX)/bin/ncpu-fleet
	install -D $(SERVE) $(DESTDIR)$(PREFIX)/bin/ncpu-serve
	install -d $(DESTDIR)$(PREFIX)/lib/ncpu
	install -m 644 $(PRELOADS) $(DESTDIR)$(PREFIX)/lib/ncpu
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 target/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -Dm 644 target/completions/ncpu.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/ncpu
	install -Dm 644 target/completions/ncpu.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_ncpu
	install -Dm 644 target/completions/ncpu.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/ncpu.fish

# libncpu for C: libraries, header, pkg-config file.
install-lib:
	@[ -e target/release/libncpu.a ] || { echo "make install-lib: run make first, as the user who builds" >&2; exit 1; }
	crates/fix/libncpu-c/install.sh target/release "$(DESTDIR)" "$(PREFIX)"

clean:
	$(CARGO) clean

target/workloads/%: workloads/%.c
	mkdir -p $(@D)
	gcc -O2 -Wall -Wextra -pthread -o $@ $<

tools:
	@.ci/tools clang gcc make pkg-config libelf-dev zlib1g-dev

test-tools:
	@.ci/tools gcc hwloc-nox libjemalloc2 libtcmalloc-minimal4 strace tmux

vm-tools:
	@.ci/tools qemu-system-x86 busybox-static cpio
