# The modules of this repository; each also builds and tests alone, with GOWORK=off.
MODULES := . redlocktest cmd/redlock integration
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# For containers built by integration/image.sh, where no image can be pulled; anybody else leaves this unset.
LOCAL_IMAGE := redlock-test-redis:local

# The packages of integration/ that test on real servers.
ON_SERVERS := go list ./... | grep -v '/bench\|/sim'

.PHONY: help test lint vuln model bench fuzz image drill soak soak-calm sim mutants

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

test: ## run all tests; on real servers where redis-server or Docker is there (CI=true requires both)
	go test -race $$(go list ./... ./redlocktest/... ./cmd/redlock/... | grep -v /internal/model)
	go test ./internal/model
	cd integration && go vet ./bench && go test ./sim
ifeq ($(CI),true)
	cd integration && REDLOCK_TEST_PROVIDER=processes go test -race -timeout 10m $$($(ON_SERVERS))
	cd integration && REDLOCK_TEST_PROVIDER=containers go test -race -timeout 10m $$($(ON_SERVERS))
else
	cd integration && go test -race -timeout 20m $$($(ON_SERVERS))
endif

lint: ## gofmt, vet, staticcheck and go mod tidy -diff, for every module
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	@for m in $(MODULES); do echo "lint $$m"; \
		(cd $$m && GOWORK=off go vet ./... && GOWORK=off go run $(STATICCHECK) ./... && GOWORK=off go mod tidy -diff) || exit 1; done

STATES := 3000000

model: ## walk through the protocols' models; make model STATES=100000000 to go as far as memory allows (20 bytes a state)
	go run ./internal/model -states $(STATES)

vuln: ## govulncheck for every module; says so where its database cannot be reached
	@.ci/vuln $(MODULES)

bench: ## the figures of docs/performance.md; about six minutes, on redis-server processes
	cd integration && go test -run '^$$' -bench . -benchtime 1x -timeout 30m ./bench

fuzz: ## each fuzz test for a while; make fuzz FUZZTIME=10m
	@for f in $$(grep -ho 'func Fuzz[A-Za-z]*' *_test.go | sed 's/func //'); do \
		go test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-30s} . || exit 1; done

image: ## build the container image for tests from this machine's redis-server
	integration/image.sh

drill: ## take nodes away under a lock and watch
	go run ./cmd/redlock drill

DURATION := 2m
SEED := 1
PROVIDER := processes
LOCK := redlock
OUT := $(CURDIR)/soak-$(shell date +%Y%m%d-%H%M%S)
HOLDS := 100000

soak: ## break real servers under contending processes and check everything; make soak DURATION=1h SEED=1 PROVIDER=processes LOCK=redlock
	cd integration && go run ./soak -duration $(DURATION) -seed $(SEED) -provider $(PROVIDER) -lock $(LOCK) -out $(OUT)

soak-calm: ## the same without faults: in HOLDS=100000 holds no loss may be told
	cd integration && go run ./soak -faults none -holds $(HOLDS) -duration 1h -ttl 5s -provider $(PROVIDER) -lock $(LOCK) -out $(OUT)

# A build of the simulator in which nothing is left to chance; where this Go is not known to it, an ordinary one.
EXACT = $$(go run ./sim/exact $(CURDIR)/bin/_exact)

sim: ## random schedules in virtual time; make sim SCHEDULES=1000 SEED=1, make sim DURATION=8h, one seed with TRACE=1
	cd integration && SEED=$(or $(SEED),1) SCHEDULES=$(or $(SCHEDULES),400) DURATION=$(if $(findstring command,$(origin DURATION)),$(DURATION)) TRACE=$(TRACE) \
		go test -overlay "$(EXACT)" -run '^TestSimulation$$' -count=1 -timeout 0 -v ./sim

mutants: ## rules of the library taken out one by one: the simulator must convict each; make mutants MUTANT=guard
	cd integration && overlay="$(EXACT)" && SIM_OVERLAY="$$overlay" MUTANTS=1 MUTANT='$(MUTANT)' SEARCH=$(SEARCH) \
		go test -overlay "$$overlay" -run '^TestEveryMutantIsConvicted$$' -count=1 -timeout 0 -v ./sim
