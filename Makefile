# Everything a contributor types. `make test` is the whole check; CI runs .ci/run, which runs `make test`.

GO       ?= go
FUZZTIME ?= 30s
# ALLOW=hack/skips.txt makes a skip that the list does not name a failure.
ALLOW    ?=

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
KREW     := sigs.k8s.io/krew/cmd/validate-krew-manifest@v0.5.0

.PHONY: build test tools lint fuzz full oracle lab-up lab-down lab-shell bench bench-relay golden fixtures schema reference checks krew-check release-check troubleshoot-check prometheus-check soak bench-proxy clean

build: ## the program, in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/ ./cmd/kubectl-svcnet

test: tools ## install what the tests need, run all that this machine can run, say what was skipped and why
	$(GO) run ./hack/testrun $(if $(ALLOW),-allow $(ALLOW))

tools:
	@hack/test-tools

lint: ## golangci-lint, built by go run: minutes when cold, then from the build cache
	GOFLAGS=-mod=mod $(GO) run $(GOLANGCI) run --allow-parallel-runners

fuzz: ## every fuzz target for FUZZTIME
	$(GO) run ./hack/fuzz -time $(FUZZTIME)

full: ## audits against the real kube-proxy, whole: 300 random sets of objects, 1,000 random changes, 1,020 that are mended, 200 repairs that are killed; docs/proof.md has the results (root, more than an hour)
	SVCNET_AUDIT_SETS=300 $(GO) test -count=1 -timeout 0 -run TestRandomObjects -v ./test/audit
	SVCNET_MUTANTS=1000 $(GO) test -count=1 -timeout 0 -run TestMutants -v ./test/audit
	SVCNET_AUDIT_SETS=30 SVCNET_MUTANTS=240 SVCNET_GUEST_MINUTES=240 $(GO) test -count=1 -timeout 0 -tags guest -run TestIPVS -v ./test/audit
	SVCNET_REPAIR_MUTANTS=340 $(GO) test -count=1 -timeout 0 -run 'TestRepair$$' -v ./test/audit
	SVCNET_REPAIR_KILLS=200 $(GO) test -count=1 -timeout 0 -run TestRepairKilled -v ./test/audit
	SVCNET_REPAIR_MUTANTS=240 SVCNET_REPAIR_KILLS=30 SVCNET_GUEST_MINUTES=240 $(GO) test -count=1 -timeout 0 -tags guest -run 'TestRepairIPVS|TestRepairKilledIPVS' -v ./test/audit
	SVCNET_REPAIR_MUTANTS=87 SVCNET_REPAIR_KILLS=20 SVCNET_GUEST_MINUTES=300 $(GO) test -count=1 -timeout 0 -tags guest -run 'TestRepairIPVS|TestRepairKilledIPVS|TestGeneratedIPVS' -v ./test/audit

oracle: ## random rules and packets against this machine's kernel, SVCNET_ORACLE_FOR for iptables and again for nftables (root)
	failed=0; for test in TestKernel TestKernelNFT; do \
		SVCNET_ORACLE_FOR=$${SVCNET_ORACLE_FOR:-1h} $(GO) test -count=1 -timeout 0 -run "^$$test$$" -v ./test/oracle || failed=1; \
	done; exit $$failed

soak: ## the fallback proxy for SVCNET_SOAK (30m) of random changes, restarts of the API server and deaths of backends (root)
	SVCNET_SOAK=$${SVCNET_SOAK:-30m} $(GO) test -count=1 -timeout 0 -run '^TestSoak$$' -v ./test/proxy

bench-proxy: ## the fallback proxy beside kube-proxy in nftables and iptables mode, 10,000 Services (root, an hour)
	$(GO) run ./test/proxy/cmd/beside

LAB      := $(GO) run ./test/lab/cmd/lab
NODE     ?= n1

lab-up: ## three real nodes in network namespaces, with a few Services on them; returns when they serve (root)
	$(LAB) up -detach $(if $(BACKEND),-backend $(BACKEND))

lab-down: ## and away with them
	$(LAB) down

lab-shell: ## a shell inside node NODE (n1), or NODE=client, cp, pod-web-1, with kubectl's KUBECONFIG set
	@$(LAB) shell -node $(NODE)

bench: ## the budgets of docs/performance.md, then the benchmarks of every package
	$(GO) run ./hack/budgets
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-relay: ## the userspace proxy beside HAProxy and nginx, which it installs (root)
	@test/relay/peers
	$(GO) run ./test/relay/cmd/bench $(BENCH)

golden: ## write what the program says now into the golden files; read the diff before you commit it
	$(GO) test ./test/e2e ./explain/render -update

fixtures: ## record nodes of every kube-proxy of the list for test/recorded; minutes a version the first time (root)
	$(GO) run ./test/recorded/cmd/record $(VERSIONS)

schema: ## docs/schema from the types of package report
	$(GO) run ./hack/schema

reference: ## docs/man and docs/cli from the commands
	$(GO) run ./hack/reference

checks: krew-check release-check troubleshoot-check prometheus-check ## what only others' own code can check, in modules of its own; minutes the first time

# vet would look at all that these tests import, some thousand packages.
release-check: ## .goreleaser.yaml as goreleaser reads it, and two builds from it that have to be equal
	cd test/release && $(GO) test -vet=off -count=1 -timeout 30m ./...

troubleshoot-check: ## deploy/troubleshoot.yaml as Troubleshoot reads it, and what it makes of this program's reports
	cd test/troubleshoot && $(GO) test -vet=off -count=1 -timeout 30m ./...

krew-check: ## render krew.yaml for a made-up release and check its form
	$(GO) run ./hack/krew -tag v0.0.0 -out dist/svcnet.yaml
	GOFLAGS=-mod=mod $(GO) run $(KREW) -manifest dist/svcnet.yaml -skip-install

prometheus-check: ## alert rules and dashboard of deploy, by Prometheus' own parser and engine; minutes when cold
	cd test/prometheus && $(GO) test -vet=off -count=1 ./...

clean:
	rm -rf bin dist
