# yoke's build. `make help` lists the targets; knobs: BUILD, SANITIZE=address,undefined, WERROR=1, V=1, CC,
# CFLAGS, CPU_ISAS=all, CUDA=1 or 0, CUDA_HOME, MPI=1 or 0, UCX=1 or 0.
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := all
SHELL := /bin/bash
# Where Fedora has Open MPI's commands, and Arch perl's: not on everybody's path.
export PATH := $(PATH):/usr/lib64/openmpi/bin:/usr/bin/core_perl

VERSION  := $(shell sed -n 's/^\#define YK_VERSION "\(.*\)"/\1/p' include/yoke/base.h)
SOVERSION := 2
comma    := ,
SANITIZE ?=
BUILD    ?= build$(if $(SANITIZE),/$(subst $(comma),-,$(SANITIZE)))
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
JOBS     ?= $(shell nproc)
# Many tests wait most of their time: more of them than there are cores (scripts/order-tests).
TEST_JOBS ?= $$(($(JOBS) + ($(JOBS) + 1) / 2))

ifeq ($(origin CC),default)
CC := $(if $(shell command -v gcc),gcc,clang)
endif
# What the compiler makes code for, which is another machine than this one in a cross build.
ARCH     := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2> /dev/null)))
# Kernels and what else is hot have more, and what waits for others less: OPTIMISE of files, below.
OPTIMISE ?= $(if $(SANITIZE),-O1,-O2)
# None, which saves a quarter of the first build and most of its room; what a sanitizer prints needs lines alone.
DEBUG_INFO ?= $(if $(SANITIZE),-g1)
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef \
            -Wwrite-strings -Werror=implicit-function-declaration $(if $(WERROR),-Werror)
CFLAGS   ?= $(OPTIMISE) $(DEBUG_INFO)
YK_CFLAGS := -std=gnu11 $(WARNINGS) -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -pthread \
             -D_GNU_SOURCE -I. -Iinclude -Isrc -MMD -MP
YK_LDFLAGS := -pthread
ifneq ($(SANITIZE),)
YK_CFLAGS  += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all -DYK__SANITIZED=1
YK_LDFLAGS += -fsanitize=$(SANITIZE)
endif
LIBS := -ljansson -lsodium -ljpeg -lpng -lz -lm

# `make run` and `make test` are a newcomer's first commands: they install what is missing and use all cores.
ifneq ($(filter run test,$(MAKECMDGOALS)),)
INSTALL_MISSING := yes
MAKEFLAGS += -j$(JOBS)
endif

# ---- what is built ---------------------------------------------------------------------------------------------------
# One source, several instruction sets: see the note in src/device/cpu/cpu.h. Built is the widest one of this machine, as the
# compiler knows it, or what CPU_ISAS lists: all, "base v3". Where the compiler does not know this machine, or builds for
# another, it is all, as it is for what is installed. The thread sanitizer and the fuzzers look for races and at parsers, which
# are the same in each, in the plainest.
ALL_ISAS := base$(if $(filter x86_64,$(ARCH)), v3 v4)
ISA_FLAGS_base :=
ISA_FLAGS_v3   := -march=x86-64-v3
ISA_FLAGS_v4   := -march=x86-64-v4 -mprefer-vector-width=512
ISA_NEEDS_v3   := __AVX2__ __FMA__ __BMI__ __BMI2__ __F16C__ __LZCNT__ __MOVBE__
ISA_NEEDS_v4   := $(ISA_NEEDS_v3) __AVX512F__ __AVX512BW__ __AVX512CD__ __AVX512DQ__ __AVX512VL__
HOST_MACROS     = $(if $(filter $(ARCH),$(shell uname -m)),$(shell $(CC) -march=native -dM -E -x c /dev/null 2> /dev/null))
isa_there       = $(if $(filter-out $(1),$(ISA_NEEDS_$(2))),,$(2))
host_isa        = $(if $(1),$(lastword $(foreach isa,$(ALL_ISAS),$(call isa_there,$(1),$(isa)))),$(ALL_ISAS))
ISAS_ASKED     := $(strip $(CPU_ISAS))
ifeq ($(ISAS_ASKED),)
ISAS := $(if $(findstring thread,$(SANITIZE))$(findstring fuzzer,$(SANITIZE)),base,$(if $(word 2,$(ALL_ISAS)),$(call host_isa,$(HOST_MACROS)),base))
else
$(if $(filter-out all $(ALL_ISAS),$(ISAS_ASKED)),$(error CPU_ISAS=$(ISAS_ASKED): expected "all", or some of the instruction sets of $(ARCH): $(ALL_ISAS)))
ISAS := $(if $(filter all,$(ISAS_ASKED)),$(ALL_ISAS),$(filter $(ISAS_ASKED),$(ALL_ISAS)))
endif
INSTALLED_ISAS := $(if $(ISAS_ASKED),$(ISAS),$(ALL_ISAS))

# A folder or file that is named here and not there is an error, and not left out.
sources_in      = $(foreach d,$(1),$(or $(wildcard src/$(d)/*.c),$(error Makefile: there is no source in src/$(d)/)))
KERNEL_SOURCES := $(filter-out src/device/cpu/cpu_%.c,$(call sources_in,device/cpu device/cpu/*))
kernels_named   = $(foreach n,$(1),$(or $(filter %/$(n).c,$(KERNEL_SOURCES)),$(error Makefile: there is no kernel source $(n).c)))
# Small loops that are called without a device, too: there is always one for any processor.
LOOP_SOURCES   := src/base/xxh3_isa.c src/comm/native/combine_isa.c
# The files that choose between the sets are told which are built.
SET_AWARE      := src/base/isa.c src/base/xxh3.c src/comm/native/combine.c src/device/cpu/cpu_backend.c
LIB_SOURCES    := $(filter-out $(KERNEL_SOURCES) $(LOOP_SOURCES),$(call sources_in,base host device device/memory device/cpu tensor autograd ops nn value \
                  optim data net launch comm comm/native parallel checkpoint/formats checkpoint/shards checkpoint/training rpc elastic observe onnx))
CLI_FOLDERS    := cli cli/new cli/run cli/train cli/ckpt cli/doctor cli/bench cli/monitor cli/plot cli/top cli/trace
CLI_SOURCES    := $(call sources_in,$(CLI_FOLDERS))
# ONLY="pool conv*" takes the tests of these names alone; "ckpt_test" is the program of that name, "ckpt.sh" the script.
TEST_SOURCES   := $(foreach name,$(or $(ONLY),*),$(wildcard tests/*/$(name:%_test=%)_test.c))
TEST_SCRIPTS   := $(foreach name,$(or $(ONLY),*),$(wildcard tests/cli/$(name:%.sh=%).sh))
# Programs of the tests that scripts run as well, by their lines "needs_built tests/x/y_test".
SCRIPT_TESTS   := $(if $(TEST_SCRIPTS),$(shell sed -n 's#^needs_built ##p' $(TEST_SCRIPTS) | sort -u))
NO_TEST        := $(foreach name,$(ONLY),$(if $(wildcard tests/*/$(name:%_test=%)_test.c tests/cli/$(name:%.sh=%).sh)$(filter $(subst *,%,$(name)),emulator_faults),,$(name)))
$(if $(strip $(NO_TEST)),$(error ONLY: no test is named $(strip $(NO_TEST)); names are those of tests/*/NAME_test.c and tests/cli/NAME.sh))
FUZZ_SOURCES   := $(wildcard tests/fuzz/*.c)
# Backends that need a heavy library are objects of their own, built where the library is found. One that is not there is left
# out in silence, one that cannot be built with one line; where it was asked for (MPI=1, CUDA=1) that is an error. A make that
# is called by another says nothing again. nvcc takes longer than all the rest: it runs where CUDA=1 or CUDA_HOME asks for it.
SAYS  := $(if $(filter help clean uninstall,$(MAKECMDGOALS))$(filter-out 0,$(MAKELEVEL))$(MAKE_RESTARTS),,yes)
# taken FOUND,VARIABLE,NAME: what find-mpi, find-ucx or find-cuda printed, without a reason.
taken  = $(if $(filter -,$(firstword $(1))),$(call left_out,$(wordlist 2,99,$(1)),$(2),$(3)),$(or $(1),$(if $(filter 1,$($(2))),$(call left_out,it is not there,$(2),$(3)))))
left_out = $(if $(filter 1,$($(2))),$(error $(2)=1: $(3) cannot be built: $(1)),$(if $(SAYS),$(info $(3) is left out: $(1) ($(or $(2),CUDA)=0 says nothing))))
MPI_FOUND      := $(if $(filter 0,$(MPI)),,$(call taken,$(shell CC='$(CC)' scripts/find-mpi),MPI,The mpi backend))
MPI_CFLAGS     := $(patsubst -I%,-isystem %,$(MPI_FOUND))
UCX_LIBS       := $(if $(filter 0,$(UCX)),,$(call taken,$(shell CC='$(CC)' scripts/find-ucx),UCX,The ucx backend))
CUDA_ASKED     := $(if $(filter 0,$(CUDA)),,$(filter 1,$(CUDA))$(CUDA_HOME))
CUDA_FOUND     := $(if $(CUDA_ASKED),$(call taken,$(shell CUDA_HOME='$(CUDA_HOME)' scripts/find-cuda),CUDA,The cuda backend))
CUDA_TOOLKIT   := $(word 1,$(CUDA_FOUND))
CUDA_LIBRARIES := $(word 3,$(CUDA_FOUND))
# The emulator of CUDA (tests/emulator: the same sources as plain C++, with stand-ins of CUDA's calls) needs the toolkit's
# headers and a compiler of C++ alone.
HEADERS_FOUND  := $(if $(CUDA_FOUND)$(filter 0,$(CUDA)),,$(shell CUDA_HOME='$(CUDA_HOME)' scripts/find-cuda --headers))
CUDA_HEADERS   := $(or $(CUDA_FOUND),$(if $(CUDA_ASKED),$(if $(filter -,$(firstword $(HEADERS_FOUND))),,$(HEADERS_FOUND)),$(call taken,$(HEADERS_FOUND),,The emulator of CUDA)))
ifneq ($(CUDA_HEADERS),)
CUDA_HEADERS   := $(if $(shell $(CXX) --version 2> /dev/null),$(CUDA_HEADERS),$(call left_out,there is no compiler of C++ ($(CXX)),,The emulator of CUDA))
endif
CUDA_VERSIONS  := $(subst _, ,$(word 4,$(CUDA_HEADERS)))
NCCL_VERSION   := $(subst _, ,$(filter NCCL_%,$(subst $(comma)_, ,$(word 4,$(CUDA_HEADERS)))))
# The processors that get code of their own; PTX is compiled by the driver for those that come later. That of compute_80
# serves them all, since no kernel has anything of its own for one, and costs no third run of the compiler. CUDA_ARCHS=90a
# takes half as long, and leaves a plug-in for those GPUs alone.
CUDA_ARCHS     ?= 80 90a
CUDA_CODE      := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a)$(comma)code=$(if $(filter 80,$(a)),[sm_80$(comma)compute_80],sm_$(a)))
CUDA_CFLAGS    := $(patsubst %,-isystem %/include,$(filter-out /usr,$(word 1,$(CUDA_HEADERS))))
NVCC           := $(if $(shell command -v ccache),ccache )$(CUDA_TOOLKIT)/bin/nvcc
# Our kernels fuse no multiply-adds but those that the source writes as such: the same bits as on the CPU. What ptxas says
# of each (registers, stack, spills) is kept beside the object for scripts/check-kernels.
NVCC_FLAGS     := -std=c++17 -O3 -fmad=false $(CUDA_CODE) -Iinclude -Isrc -MMD -MP -Wno-deprecated-gpu-targets -Xptxas -v \
                  -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra $(if $(WERROR),-Werror all-warnings)
# Empty where there is none: what asks by $(if ...) takes a single space for something.
BACKENDS       := $(strip $(if $(MPI_CFLAGS),$(BUILD)/yoke-mpi.so) $(if $(UCX_LIBS),$(BUILD)/yoke-ucx.so) $(if $(CUDA_TOOLKIT),$(BUILD)/yoke-cuda.so $(if $(NCCL_VERSION),$(BUILD)/yoke-nccl.so)))
EMULATOR       := $(strip $(if $(CUDA_HEADERS),$(BUILD)/emulator/yoke-cuda.so $(BUILD)/emulator/libnvidia-ml.so.1 $(if $(NCCL_VERSION),$(BUILD)/emulator/yoke-nccl.so)))
EXAMPLE_SOURCES := $(wildcard examples/*.c)

# What takes longest to compile is begun first, so that no core waits for it in the end.
SLOW           := conv_lanes reduce norm pool2d gemm_micro conv_winograd binary unary conv_few copy gemm index index_put conv_planes
SLOW           := $(call kernels_named,$(SLOW))
KERNEL_SOURCES := $(SLOW) $(filter-out $(SLOW),$(KERNEL_SOURCES))
isa_objects = $(foreach isa,$(1),$(KERNEL_SOURCES:src/%.c=$(BUILD)/$(isa)/%.o)) \
              $(foreach isa,$(sort base $(1)),$(LOOP_SOURCES:src/%.c=$(BUILD)/$(isa)/%.o))
LIB_OBJECTS := $(call isa_objects,$(ISAS)) $(LIB_SOURCES:%.c=$(BUILD)/%.o)
# The same with all instruction sets, for other machines (scripts/gpu-check), where those of this one are not all: the files
# that choose between sets are compiled once more. And what `make install` copies, whose plug-ins will be elsewhere.
ALL := $(if $(filter $(words $(ISAS)),$(words $(INSTALLED_ISAS))),$(BUILD),$(BUILD)/all)
ALL_OBJECTS := $(patsubst $(BUILD)/%,$(ALL)/%,$(SET_AWARE:%.c=$(BUILD)/%.o)) \
               $(filter-out $(SET_AWARE:%.c=$(BUILD)/%.o),$(LIB_SOURCES:%.c=$(BUILD)/%.o)) $(call isa_objects,$(INSTALLED_ISAS))
INSTALLED := $(BUILD)/installed
INSTALLED_OBJECTS := $(filter-out %/plugin_folder.o,$(ALL_OBJECTS)) $(INSTALLED)/plugin_folder.o
MPI_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/comm/mpi/*.c))
UCX_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/comm/ucx/*.c))
CUDA_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(basename $(wildcard src/device/cuda/*.c)) $(wildcard src/device/cuda/*.cu))
EMULATOR_SOURCES := $(filter-out %_faults.cc,$(wildcard tests/emulator/*.cc))
EMULATOR_OBJECTS := $(patsubst %,$(BUILD)/emulator/%.o,$(wildcard src/device/cuda/*.c src/device/cuda/*.cu) $(EMULATOR_SOURCES))
NCCL_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/comm/nccl/*.c))
EMULATOR_NCCL_OBJECTS := $(patsubst %,$(BUILD)/emulator/%.o,$(wildcard src/comm/nccl/*.c))
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
OPERATIONS_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard bench/operations/*.c)) $(BUILD)/src/cli/options.o $(BUILD)/src/cli/pages.o $(BUILD)/src/cli/bench/bench.o
TEST_SUPPORT := $(patsubst %.c,$(BUILD)/%.o,$(filter-out %/sample_plugin.c %/sample_network.c %/replay.c,$(wildcard tests/support/*.c)))
TESTS       := $(TEST_SOURCES:%.c=$(BUILD)/%)
GPU_CASES_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/gpu/*.c)) $(filter $(BUILD)/tests/support/slot_%,$(TEST_SUPPORT))
FUZZERS     := $(FUZZ_SOURCES:%.c=$(BUILD)/%)
EXAMPLES    := $(EXAMPLE_SOURCES:%.c=$(BUILD)/%)

.PHONY: all lib cli tests fuzzers replays objects nightly examples run test test-emulator check bench fuzz soak install dist deb uninstall clean help
# An emulator that was built before is kept up to date: a program that is pointed to it takes what lies there.
all: lib cli examples $(wildcard $(EMULATOR))
lib: $(BUILD)/libyoke.a $(BUILD)/libyoke.so $(BACKENDS)
cli: $(BUILD)/yoke $(BACKENDS)
tests: $(TESTS) $(BUILD)/bench/operation_times $(BUILD)/bench/elastic_simulation $(BACKENDS) $(EMULATOR) $(BUILD)/tests/gpu/gpu_cases
fuzzers: $(FUZZERS)
examples: $(EXAMPLES)
# What a compiler is to see and nobody to link, but for nvcc's.
objects: $(LIB_OBJECTS) $(CLI_OBJECTS) $(OPERATIONS_OBJECTS) $(if $(MPI_CFLAGS),$(MPI_OBJECTS)) $(if $(UCX_LIBS),$(UCX_OBJECTS)) $(TESTS:%=%.o) $(TEST_SUPPORT) $(GPU_CASES_OBJECTS) $(EXAMPLES:%=%.o) $(FUZZERS:%=%.o) \
    $(if $(CUDA_HEADERS),$(filter-out %.cu.o,$(CUDA_OBJECTS)) $(EMULATOR_OBJECTS)) $(if $(NCCL_VERSION),$(NCCL_OBJECTS) $(EMULATOR_NCCL_OBJECTS))

# ---- what it was made of ----------------------------------------------------------------------------------------------
# A file for each of what objects depend on besides their sources: it is written anew when what it says has changed. With each
# of them what the user gave is written to `options`, as arguments of make: who calls make in this folder again, as tests do,
# gives the same.
OPTIONS := CC CXX AR ARCH CFLAGS CPPFLAGS LDFLAGS OPTIMISE DEBUG_INFO WERROR CPU_ISAS CUDA CUDA_ARCHS CUDA_HOME MPI UCX SANITIZE
space := $(subst ,, )
GIVEN := $(foreach v,$(OPTIONS),$(if $(filter command environment,$(origin $(v))),$(v)=$(subst $(space),\$(space),$($(v)))))
isas_macro = -D'YK__ISAS(X,A)=$(foreach isa,$(1),X($(isa),A))'
MADE_OF_flags     := $(CC) $(filter-out -Werror,$(YK_CFLAGS)) $(CFLAGS) $(CPPFLAGS)
MADE_OF_isas      := $(ISAS)
MADE_OF_installed := $(INSTALLED_ISAS)
MADE_OF_plugins   := $(LIBDIR)/yoke
MADE_OF_linking   := $(CC) $(YK_LDFLAGS) $(LDFLAGS) $(LIBS)
MADE_OF_mpi       := $(MPI_CFLAGS)
MADE_OF_cuda      := $(CUDA_HEADERS) $(CXX) $(if $(CUDA_TOOLKIT),$(CUDA_ARCHS))
define MADE_OF_RULE
$(BUILD)/made-of/$(1): $(if $(call same,$(file <$(BUILD)/made-of/$(1)),$(MADE_OF_$(1))),,FORCE)
	@mkdir -p $$(@D)
	@printf '%s\n' '$$(subst ','\'',$$(MADE_OF_$(1)))' > $$@
	@printf '%s\n' '$$(subst ','\'',$$(strip $$(GIVEN)))' > $$(@D)/options
endef
same = $(and $(findstring x$(strip $(1)),x$(strip $(2))),$(findstring x$(strip $(2)),x$(strip $(1))))
.PHONY: FORCE
$(foreach made,flags isas installed plugins linking mpi cuda,$(eval $(call MADE_OF_RULE,$(made))))
$(SET_AWARE:%.c=$(BUILD)/%.o) $(filter $(BUILD)/tests/device/%,$(TEST_SOURCES:%.c=$(BUILD)/%.o)): $(BUILD)/made-of/isas
$(SET_AWARE:%.c=$(BUILD)/%.o) $(BUILD)/tests/device/%.o: YK_CFLAGS += $(call isas_macro,$(ISAS))
$(MPI_OBJECTS): $(BUILD)/made-of/mpi

# ---- rules -----------------------------------------------------------------------------------------------------------
# Each step is counted where a first look at what there is to do says how many there are.
say = @$(if $(V),,echo "$(counted)$(1) $(2)" &&)
COUNTS := $(if $(NO_COUNT)$(filter-out all lib cli run tests test install,$(MAKECMDGOALS))$(findstring n,$(filter-out -%,$(firstword $(MAKEFLAGS)))),,yes)
counted = $(if $(COUNTS),$(eval STEP += x)[$(call right,$(words $(STEP)))/$(STEPS)] ,$(if $(NO_COUNT),step: ,  ))
STEPS = $(eval STEPS := $(shell $(MAKE) -n --no-print-directory NO_COUNT=1 $(MAKEOVERRIDES) $(MAKECMDGOALS) 2> /dev/null | grep -c '^echo "step: '))$(STEPS)
right = $(if $(filter-out 0,$(words $(wordlist 100,100,$(STEP)))),$(1),$(if $(filter-out 0,$(words $(wordlist 10,10,$(STEP)))), $(1),  $(1)))
link = $(CC) $(YK_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a %/libyoke.so,$^)

$(BUILD)/libyoke.a: $(LIB_OBJECTS) $(BUILD)/made-of/isas
	$(call say,AR  ,$@) rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# Objects export everything to what links them (the tests' twin of this library does); what the headers do not declare becomes
# the library's own here, and its calls of it direct.
$(BUILD)/exports: scripts/export-list scripts/public-functions $(wildcard include/yoke/*.h)
	@mkdir -p $(@D)
	$(call say,MAKE,$@) scripts/export-list > $@.part && mv $@.part $@
$(sort $(LIB_OBJECTS) $(ALL_OBJECTS) $(INSTALLED_OBJECTS)): YK_CFLAGS += -fvisibility=default -fno-semantic-interposition
exporting = -Wl,--version-script=$(BUILD)/exports
# The program has the whole library in it, exports what it exports, and bears its name: a network of a user's own that needs
# libyoke.so (yoke train --model ./libnet.so) finds it there, and no other copy is loaded.
exporting_program = -rdynamic $(exporting) -Wl,-soname,libyoke.so.$(SOVERSION)
link_program = $(CC) $(YK_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--whole-archive $(filter %.a,$^) -Wl,--no-whole-archive $(exporting_program)
$(BUILD)/libyoke.so: $(LIB_OBJECTS) $(BUILD)/exports $(BUILD)/made-of/isas $(BUILD)/made-of/linking
	$(call say,LINK,$@) $(link) $(exporting) -shared -Wl,-soname,libyoke.so.$(SOVERSION) $(LIBS) && ln -sf libyoke.so $@.$(SOVERSION)

$(BUILD)/src/comm/mpi/%.o: YK_CFLAGS += $(MPI_CFLAGS)
$(BUILD)/yoke-mpi.so: $(MPI_OBJECTS) $(BUILD)/made-of/linking
	$(call say,LINK,$@) $(link) -shared $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) $(shell mpicc --showme:link) -lm

$(BUILD)/yoke-ucx.so: $(UCX_OBJECTS) $(BUILD)/made-of/linking
	$(call say,LINK,$@) $(link) -shared $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) $(UCX_LIBS)

$(BUILD)/src/device/cuda/%.o: YK_CFLAGS += $(CUDA_CFLAGS) -DYK__CUDA_BUILT_WITH='"$(CUDA_VERSIONS)"'
$(BUILD)/%.cu.o: %.cu $(BUILD)/made-of/cuda
	@mkdir -p $(@D)
	$(call say,NVCC,$<) { $(NVCC) $(NVCC_FLAGS) -c -o $@ $< 2> $@.ptxas || { cat $@.ptxas >&2; rm -f $@; exit 1; }; } && \
	    { grep -vE '^(ptxas info|    [0-9]+ bytes stack frame)' $@.ptxas >&2 || true; }
# cudart is linked statically; the driver is looked for by it when a program asks for a GPU.
$(BUILD)/yoke-cuda.so: $(CUDA_OBJECTS)
	$(call say,LINK,$@) $(CXX) $(YK_LDFLAGS) $(LDFLAGS) -shared -o $@ $^ $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) \
	    -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -L$(CUDA_LIBRARIES) -lcudart_static -ldl -lrt -lm

# NCCL is looked for when a group of its backend is made, and not linked; the plug-in of CUDA, next to it, is.
beside = -L$(@D) -l:yoke-cuda.so -Wl$(comma)-rpath$(comma)'$$ORIGIN'
$(BUILD)/src/comm/nccl/%.o: YK_CFLAGS += $(CUDA_CFLAGS) -DYK__NCCL_BUILT_WITH='"$(NCCL_VERSION)"'
$(BUILD)/yoke-nccl.so: $(NCCL_OBJECTS) $(BUILD)/yoke-cuda.so
	$(call say,LINK,$@) $(CXX) $(YK_LDFLAGS) $(LDFLAGS) -shared -o $@ $(filter %.o,$^) $(beside) $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) \
	    -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -L$(CUDA_LIBRARIES) -lcudart_static -ldl -lrt -lm

EMULATOR_CXXFLAGS = $(filter-out -std=% -Wstrict-prototypes -Wmissing-prototypes -Werror=implicit-function-declaration,$(YK_CFLAGS)) \
                    -std=gnu++17 -ffp-contract=off
$(BUILD)/emulator/%.c.o: %.c $(BUILD)/made-of/flags $(BUILD)/made-of/cuda | $(BUILD)/have-build
	@mkdir -p $(@D)
	$(call say,CC  ,$< (emulator)) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) $(CUDA_CFLAGS) \
	    -DYK__CUDA_BUILT_WITH='"the emulator of CUDA"' -DYK__NCCL_BUILT_WITH='"the emulator of NCCL"' \
	    -Ddlopen=emulator_dlopen -Ddlsym=emulator_dlsym -Ddlerror=emulator_dlerror -Ddlclose=emulator_dlclose \
	    -c -o $@ $<
$(BUILD)/emulator/%.o: % $(BUILD)/made-of/flags $(BUILD)/made-of/cuda | $(BUILD)/have-build
	@mkdir -p $(@D)
	$(call say,CXX ,$< (emulator)) $(CXX) -x c++ -Itests/emulator/include $(EMULATOR_CXXFLAGS) $(CFLAGS) $(CUDA_CFLAGS) -c -o $@ $<
# The runtime's stand-ins are in this object, for the plug-in of NCCL too.
$(BUILD)/emulator/tests/emulator/%.o: EMULATOR_CXXFLAGS += -fvisibility=default
$(BUILD)/emulator/yoke-cuda.so: $(EMULATOR_OBJECTS)
	$(call say,LINK,$@) $(CXX) $(YK_LDFLAGS) $(LDFLAGS) -shared -o $@ $^ $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs)
$(BUILD)/emulator/libnvidia-ml.so.1: tests/emulator/nvml.c | $(BUILD)/have-build
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -MF $(@:.so.1=.d) $(YK_LDFLAGS) $(LDFLAGS) -shared -o $@ $<
$(BUILD)/emulator/yoke-nccl.so: $(EMULATOR_NCCL_OBJECTS) $(BUILD)/emulator/yoke-cuda.so
	$(call say,LINK,$@) $(CXX) $(YK_LDFLAGS) $(LDFLAGS) -shared -o $@ $(filter %.o,$^) $(beside) \
	    $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs)

$(BUILD)/yoke: $(BUILD)/libyoke.a $(CLI_OBJECTS) $(BUILD)/exports $(BUILD)/made-of/linking
	$(call say,LINK,$@) $(link_program) $(LIBS)

$(INSTALLED)/plugin_folder.o: src/host/plugin_folder.c $(BUILD)/made-of/flags $(BUILD)/made-of/plugins
	@mkdir -p $(@D)
	$(call say,CC  ,$< (for installation)) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -DYK__PLUGIN_FOLDER='"$(LIBDIR)/yoke"' \
	    -c -o $@ $<
$(INSTALLED)/libyoke.a: $(INSTALLED_OBJECTS) $(BUILD)/made-of/installed
	$(call say,AR  ,$@) rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
$(INSTALLED)/libyoke.so: $(INSTALLED_OBJECTS) $(BUILD)/exports $(BUILD)/made-of/installed
	$(call say,LINK,$@) $(link) $(exporting) -shared -Wl,-soname,libyoke.so.$(SOVERSION) $(LIBS)
$(INSTALLED)/yoke: $(CLI_OBJECTS) $(INSTALLED)/libyoke.a $(BUILD)/exports
	$(call say,LINK,$@) $(link_program) $(LIBS)
ifneq ($(ALL),$(BUILD))
$(ALL)/src/%.o: src/%.c $(BUILD)/made-of/flags $(BUILD)/made-of/installed | $(BUILD)/have-build
	@mkdir -p $(@D)
	$(call say,CC  ,$< (all instruction sets)) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<
$(ALL)/libyoke.a: $(ALL_OBJECTS) $(BUILD)/made-of/installed
	$(call say,AR  ,$@) rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
$(ALL)/%: YK_CFLAGS += $(call isas_macro,$(INSTALLED_ISAS))
endif
# For scripts/gpu-check.
$(BUILD)/gpu/yoke: $(CLI_OBJECTS) $(ALL)/libyoke.a
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(link) $(LIBS)
$(BUILD)/gpu/gpu_cases: $(GPU_CASES_OBJECTS) $(ALL)/libyoke.a
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(link) $(LIBS)

# Plug-ins that plugin_test.c loads, each with one thing wrong but for the first.
SAMPLE_PLUGINS := $(foreach name,good old format sizes other symbol start,$(BUILD)/tests/plugins/yoke-$(name).so)
$(BUILD)/tests/plugins/yoke-%.so: tests/support/sample_plugin.c src/host/plugin.h | $(BUILD)/have-tests
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -MF $(@:.so=.d) -DSAMPLE_NAME='"$*"' -DSAMPLE_$* \
	    $(YK_LDFLAGS) $(LDFLAGS) -shared -o $@ $<
$(BUILD)/tests/host/plugin_test: | $(SAMPLE_PLUGINS)

# As much of a driver as cuDNN needs to make plans without a GPU.
$(BUILD)/tests/driver/libcuda.so.1: tests/emulator/libcuda.c | $(BUILD)/have-tests
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -MF $(@:.so.1=.d) $(YK_LDFLAGS) $(LDFLAGS) -shared \
	    -Wl,-soname,$(@F) -o $@ $<
$(BUILD)/tests/device/dnn_plans_test: | $(BUILD)/tests/driver/libcuda.so.1

# That the emulator finds what it is there to find.
EMULATOR_FAULTS := $(if $(EMULATOR),$(if $(filter emulator_faults,$(foreach n,$(or $(ONLY),*),$(filter $(subst *,%,$(n)),emulator_faults))),$(BUILD)/emulator/emulator_faults))
$(BUILD)/emulator/emulator_faults: $(EMULATOR_SOURCES:%=$(BUILD)/emulator/%.o) $(BUILD)/emulator/tests/emulator/emulator_faults.cc.o
	$(call say,LINK,$@) $(CXX) $(YK_LDFLAGS) $(LDFLAGS) -o $@ $^

# Runs on a machine with a GPU, which has the C library and little else.
$(BUILD)/tests/gpu/gpu_cases: $(GPU_CASES_OBJECTS) $(BUILD)/libyoke.a
	$(call say,LINK,$@) $(link) $(LIBS)

# The same parsers without libFuzzer, for files that are there: the corpora are read again by make test (tests/cli/corpora.sh).
REPLAYS := $(FUZZ_SOURCES:tests/fuzz/%.c=$(BUILD)/tests/replay/%)
replays: $(REPLAYS)
$(BUILD)/tests/replay/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/support/replay.o $(BUILD)/tests/libyoke.so $(BUILD)/made-of/linking
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(link) -Wl,-rpath,'$$ORIGIN/..:$(abspath $(BUILD)/tests)' $(LIBS)

$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/libyoke.a
	$(call say,LINK,$@) $(link) -fsanitize=fuzzer $(LIBS)

# Tests share a twin of the library, of the same objects: it exports what they call, and is, as they are, where no plug-in is.
# (With the library in each of them they take 17 GB with a sanitizer, 8 without.) Tests export what they put in the C library's
# place (strdup, fsync).
$(TESTS:%=%.o): YK_CFLAGS += -fvisibility=default
LINKED_LIBRARY := $(BUILD)/tests/libyoke.so
# Without /proc the loader does not know what $ORIGIN is.
LINKED_LIBRARY_PATH := -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../tests:$(abspath $(BUILD)/tests)'
$(LINKED_LIBRARY): $(LIB_OBJECTS) $(BUILD)/made-of/isas $(BUILD)/made-of/linking
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(link) -shared -Wl,-soname,$(@F) $(LIBS)
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_SUPPORT) $(LINKED_LIBRARY) $(BUILD)/made-of/linking
	$(call say,LINK,$@) $(link) $(LINKED_LIBRARY_PATH) -Wl,--wrap=_cmocka_run_group_tests -lcmocka $(LIBS)

# Networks that network_object_test.c loads, each with one thing wrong but for the first ones.
SAMPLE_NETWORKS := $(foreach name,good linked old copy symbol undefined silent fails outputs,$(BUILD)/tests/networks/$(name).so)
$(BUILD)/tests/networks/%.so: tests/support/sample_network.c $(LINKED_LIBRARY) $(wildcard include/yoke/*.h) | $(BUILD)/have-tests
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -MF $(@:.so=.d) -DSAMPLE_$* $(YK_LDFLAGS) $(LDFLAGS) \
	    -shared -o $@ $< $(if $(filter linked,$*),$(LINKED_LIBRARY))
$(patsubst %,$(BUILD)/tests/%_test,nn/network_object headers/constructors): | $(SAMPLE_NETWORKS)

# The library that they share lies beside the plug-ins, which it finds there.
$(BUILD)/examples/%: $(BUILD)/examples/%.o $(BUILD)/libyoke.so
	$(call say,LINK,$@) $(link) -Wl,-rpath,'$$ORIGIN/..:$(abspath $(BUILD))' -lm

$(BUILD)/bench/mpi_%: bench/mpi_%.c
	@mkdir -p $(@D)
	$(call say,CC  ,$<) mpicc -std=gnu11 $(WARNINGS) -O2 -o $@ $<

# Its command line is read as those of the verbs.
$(BUILD)/bench/operation_times: $(OPERATIONS_OBJECTS) $(BUILD)/libyoke.a $(BUILD)/made-of/linking
	@mkdir -p $(@D)
	$(call say,LINK,$@) $(link) $(LIBS)

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libyoke.a
	$(call say,LINK,$@) $(link) $(LIBS)

$(BUILD)/%.o: %.c $(BUILD)/made-of/flags | $(BUILD)/have-build
	@mkdir -p $(@D)
	$(call say,CC  ,$<) $(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

# What the assembler puts into an object.
$(BUILD)/src/observe/page.o $(ALL)/src/observe/page.o: src/observe/page.html src/observe/page.css src/observe/page.js
$(BUILD)/src/cli/new/new.o: src/cli/new/program.txt src/cli/new/makefile.txt

# Tests that walk the public headers are made from them.
$(BUILD)/tests/api/%.o: YK_CFLAGS += -I$(BUILD)/tests/api
$(patsubst %,$(BUILD)/tests/api/%_test.o,freed record retain): $(BUILD)/tests/api/handle_calls.h
$(BUILD)/tests/api/handle_calls.h: tests/support/make-handle-calls scripts/public-functions $(wildcard include/yoke/*.h)
	@mkdir -p $(@D)
	$(call say,MAKE,$@) tests/support/make-handle-calls > $@.part && mv $@.part $@
$(BUILD)/tests/headers/%.o: YK_CFLAGS += -I$(BUILD)/tests/headers
$(patsubst %,$(BUILD)/tests/headers/%_test.o,constructors options): $(BUILD)/tests/headers/header_tables.h
$(BUILD)/tests/headers/header_tables.h: tests/support/make-header-tables $(wildcard include/yoke/*.h)
	@mkdir -p $(@D)
	$(call say,MAKE,$@) tests/support/make-header-tables > $@.part && mv $@.part $@

$(TEST_SOURCES:%.c=$(BUILD)/%.o) $(TEST_SUPPORT): | $(BUILD)/have-tests

define ISA_RULE
$(BUILD)/$(1)/%.o: src/%.c $(BUILD)/made-of/flags | $(BUILD)/have-build
	@mkdir -p $$(@D)
	$$(call say,CC  ,$$< ($(1))) $$(CC) $$(YK_CFLAGS) $$(CFLAGS) $$(CPPFLAGS) $$(ISA_FLAGS_$(1)) -DYK__ISA=$(1) -c -o $$@ $$<
endef
$(foreach isa,$(ALL_ISAS),$(eval $(call ISA_RULE,$(isa))))
# Elementwise functions give the same bits on every instruction set: multiply-adds are fused only where the source says so.
UNFUSED := unary binary softmax loss attention lstm random_kernels grid_points
kernel_objects = $(foreach isa,$(1),$(patsubst src/%.c,$(BUILD)/$(isa)/%.o,$(call kernels_named,$(2))))
$(call kernel_objects,$(ALL_ISAS),$(UNFUSED)): YK_CFLAGS += -ffp-contract=off
# How much each is optimised, where OPTIMISE does not say it for all. gcc turns loops of unknown length into vectors with -O3
# alone, so that kernels have it. (With -O2 -fvect-cost-model=dynamic they compile in two thirds of the time, but batch norms,
# maxima of rows and products with few columns take up to half as long again.)
# What starts processes, talks to them and writes files waits for others most of its time; so do tests.
ifeq ($(SANITIZE)$(filter-out file,$(origin OPTIMISE)),)
COLD_FOLDERS := value net launch checkpoint/formats checkpoint/shards checkpoint/training observe onnx $(CLI_FOLDERS)
$(foreach isa,$(ALL_ISAS),$(call isa_objects,$(isa))): OPTIMISE = -O3
$(patsubst %.c,$(BUILD)/%.o,$(call sources_in,$(COLD_FOLDERS))): OPTIMISE = -O1
$(BUILD)/tests/%.o: OPTIMISE = -O1
endif
# The innermost loops of products and small convolutions: under a sanitizer with -O1, whatever trains takes two to three
# times as long. Of the set that the machines of CI run; these files take a minute longer to compile. Likewise what each
# access of an emulated kernel passes through, and the stand-ins of products.
ifneq ($(SANITIZE),)
$(call kernel_objects,v4,gemm_micro conv_small_tile conv_small_weight): OPTIMISE = -O2
$(patsubst %,$(BUILD)/emulator/tests/emulator/%.cc.o,block memory blas dnn_engines): OPTIMISE = -O2
endif

# Fuzzers look for mistakes of parsers; clang takes six times as long for instrumented kernels with -O1.
ifneq ($(findstring fuzzer,$(SANITIZE)),)
$(patsubst src/%.c,$(BUILD)/base/%.o,$(filter-out %/pictures.c,$(filter src/device/cpu/%,$(KERNEL_SOURCES)))): OPTIMISE = -O0
endif

# Whether the libraries are there is looked up once for a build folder, before anything is compiled.
$(BUILD)/have-build: | scripts/install-deps
	@mkdir -p $(@D)
	@CC="$(CC)" scripts/install-deps $(if $(INSTALL_MISSING),,--check) && touch $@
$(BUILD)/have-tests: | $(BUILD)/have-build
	@CC="$(CC)" scripts/install-deps --tests $(if $(INSTALL_MISSING),,--check) && touch $@

# `make test` makes this file first and then begins anew: what there is to build depends on what has been installed (MPI).
ifneq ($(filter test,$(MAKECMDGOALS)),)
ifeq ($(findstring n,$(filter-out -%,$(firstword $(MAKEFLAGS)))),)
include $(BUILD)/have-tests
endif
endif

.SECONDARY:
-include $(patsubst %.o,%.d,$(sort $(LIB_OBJECTS) $(ALL_OBJECTS) $(INSTALLED_OBJECTS)) $(CLI_OBJECTS) $(OPERATIONS_OBJECTS) $(MPI_OBJECTS) $(UCX_OBJECTS) $(TEST_SUPPORT) $(CUDA_OBJECTS) $(NCCL_OBJECTS) $(EMULATOR_OBJECTS) $(EMULATOR_NCCL_OBJECTS) $(BUILD)/emulator/tests/emulator/emulator_faults.cc.o) $(TESTS:%=%.d) $(FUZZERS:%=%.d) $(patsubst %.c,$(BUILD)/%.d,$(wildcard tests/gpu/*.c)) \
         $(EXAMPLES:%=%.d)

# ---- what is done with it --------------------------------------------------------------------------------------------
run: $(BUILD)/yoke
	$(BUILD)/yoke train $(ARGS)
	@printf '%s\n' '' 'Next: $(BUILD)/yoke train --help             data, networks and options of a training' \
	    '      $(BUILD)/yoke run -n 2 -- $(BUILD)/yoke train   the same training by two processes' \
	    '      examples/                         programs of your own: make examples builds them' \
	    '      make test                         all tests, a few minutes'

test: $(TESTS) $(SCRIPT_TESTS:%=$(BUILD)/%) $(if $(filter %/corpora.sh,$(TEST_SCRIPTS)),$(REPLAYS)) $(if $(filter %/cuda.sh,$(TEST_SCRIPTS)),$(BUILD)/tests/gpu/gpu_cases) $(BUILD)/yoke $(BUILD)/bench/operation_times $(BUILD)/bench/elastic_simulation $(BACKENDS) $(EMULATOR) $(EMULATOR_FAULTS) examples
	@YOKE=$(BUILD)/yoke SANITIZE=$(SANITIZE) prove --timer -j$(TEST_JOBS) --exec scripts/run-test \
	    $$(printf '%s\n' $(TESTS) $(EMULATOR_FAULTS) $(TEST_SCRIPTS) | scripts/order-tests)

# GPUs that are emulated on the host, with SEEDS orders of threads, blocks and streams: every slot against the CPU's, what
# runs on the queues, and every test that makes tensors, with cuda:0 as its default device (scripts/emulated-tests).
SEEDS ?= 1
EMULATOR_TESTS = $(filter $(BUILD)/tests/emulator/%,$(TESTS))
EMULATED_TESTS = $(filter $(TESTS),$(addprefix $(BUILD)/tests/,$(shell scripts/emulated-tests)))
ifneq ($(filter test-emulator,$(MAKECMDGOALS)),)
test-emulator: $(EMULATOR) $(EMULATOR_TESTS) $(EMULATED_TESTS)
	@$(if $(EMULATOR),,echo "test-emulator: the headers of CUDA 12 or 13 are needed (CUDA_HOME), and a compiler of C++"; exit 1)
	@export SANITIZE=$(SANITIZE); for seed in $$(seq 1 $(SEEDS)); do \
	    export YOKE_EMULATOR_SEED=$$seed; \
	    printf '%s\n' $(EMULATOR_TESTS) | scripts/order-tests | xargs -r prove --timer -j$(TEST_JOBS) --exec scripts/run-test || \
	        { echo "test-emulator: seed $$seed failed"; exit 1; }; \
	    printf '%s\n' $(EMULATED_TESTS) | scripts/order-tests | YOKE_TEST_DEVICE=cuda YOKE_TEST_EXCEPTIONS=tests/emulator/exceptions \
	        xargs -r prove --timer -j$(TEST_JOBS) --exec scripts/run-test || \
	        { echo "test-emulator: seed $$seed failed with cuda:0 as the default device"; exit 1; }; \
	done; echo "test-emulator: $(SEEDS) seeds passed, $(words $(EMULATED_TESTS)) programs with cuda:0 as their default device"
endif

# clang's warnings need no code, gcc's come with optimisation. Nothing runs what gcc makes here, unless CHECK_GCC is the folder of a build that is to be tested, with its flags.
CHECK_GCC       ?= $(BUILD)/check-gcc
CHECK_GCC_FLAGS ?= OPTIMISE=-O2 DEBUG_INFO=
check:
	scripts/check-layers
	scripts/check-recorded
	scripts/check-rows
	scripts/check-sources
	scripts/check-tested
	scripts/check-words
	scripts/check-launches
	scripts/emulated-tests --check
	$(if $(shell command -v gcc),$(MAKE) -j$(JOBS) BUILD=$(CHECK_GCC) CC=gcc $(CHECK_GCC_FLAGS) WERROR=1 all tests)
	$(if $(shell command -v gcc),$(if $(CUDA_TOOLKIT),scripts/check-kernels $(CHECK_GCC)))
	$(if $(shell command -v gcc),$(if $(CUDA_TOOLKIT),scripts/check-accesses $(CHECK_GCC)))
	$(if $(shell command -v clang),$(MAKE) -j$(JOBS) BUILD=$(BUILD)/check-clang CC=clang CXX=clang++ CFLAGS=-fsyntax-only CPU_ISAS=all WERROR=1 objects)
	@echo "check: all passed"

BENCHES := $(addprefix $(BUILD)/bench/,operation_times store page pipeline rpc rpc_examples param_server sparse gpt2 survive virtual_ranks elastic_simulation launchers trace monitor inplace_allreduce $(if $(MPI_CFLAGS),mpi_allreduce))
bench: cli examples $(BENCHES)
	failed=0; export YOKE=$(BUILD)/yoke; bench/run $(ARGS) || failed=1; bench/ops $(OPS_ARGS) || failed=1; $(BUILD)/bench/page || failed=1; \
	    YOKE_RPC_BENCH=$(BUILD)/bench/rpc bench/rpc_compare || failed=1; bench/rpc_examples_compare || failed=1; YOKE_PARAM_SERVER_BENCH=$(BUILD)/bench/param_server bench/param_server_compare || failed=1; YOKE_SPARSE_BENCH=$(BUILD)/bench/sparse bench/sparse_compare || failed=1; YOKE_GPT2_BENCH=$(BUILD)/bench/gpt2 bench/gpt2_compare || failed=1; $(BUILD)/bench/survive || failed=1; $(BUILD)/bench/virtual_ranks || failed=1; $(BUILD)/bench/elastic_simulation || failed=1; $(BUILD)/bench/launchers || failed=1; \
	    $(BUILD)/bench/trace || failed=1; $(BUILD)/bench/monitor || failed=1; exit $$failed

# Each parser is fed mutated files for FUZZ_SECONDS; what makes one fail is left in the build folder.
FUZZ_SECONDS ?= 20
FUZZ_BUILD   := $(BUILD)/fuzz
FUZZ_RUNS    := $(FUZZ_SOURCES:tests/fuzz/%.c=run-%)
fuzz:
	@scripts/install-deps --dev --check
	$(MAKE) -j$(JOBS) BUILD=$(FUZZ_BUILD) CC=clang SANITIZE=address,undefined,fuzzer-no-link fuzzers
	@$(MAKE) -j$(JOBS) --no-print-directory --output-sync=target $(FUZZ_RUNS)
	@echo "fuzz: $(words $(FUZZ_RUNS)) targets, no failures"
.PHONY: $(FUZZ_RUNS)
$(FUZZ_RUNS): run-%:
	@corpus=$(FUZZ_BUILD)/corpus/$*; mkdir -p $$corpus; seeds=tests/fuzz/corpus/$*; [ -d $$seeds ] || seeds=; \
	    echo "fuzz: $* for $(FUZZ_SECONDS) s"; \
	    $(FUZZ_BUILD)/tests/fuzz/$* -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
	        -print_final_stats=1 -artifact_prefix=$(FUZZ_BUILD)/$*- $$corpus $$seeds

# What takes too long for every commit: the stages, and what each proves, are in .ci/nightly.
nightly:
	.ci/nightly $(ARGS)

# Random faults and random ends, many times over: no hang, no wrong error, no process left behind, and after SOAK_FAULTS
# faults of jobs that are restarted the weights of the undisturbed run.
SOAK ?= 1000
SOAK_FAULTS ?= $(SOAK)
HOSTILE_TESTS := $(addprefix $(BUILD)/tests/,comm/hostile_test comm/hostile_ranks_test launch/hostile_launchers_test)
soak: $(BUILD)/tests/soak/faults $(BUILD)/tests/comm/breaking_test $(BUILD)/tests/checkpoint/group_kills_test $(BUILD)/tests/net/descriptors_test \
      $(BUILD)/tests/elastic/survive_test $(BUILD)/tests/launch/roles_test $(BUILD)/tests/observe/hangs_test \
      $(BUILD)/tests/rpc/rpc_chaos_test $(BUILD)/tests/rpc/rpc_publish_test $(BUILD)/examples/rl_cartpole $(HOSTILE_TESTS) $(BUILD)/yoke \
      $(BUILD)/bench/monitor
	$(BUILD)/tests/soak/faults $(SOAK)
	YOKE_CHAOS=$$((10 * $(SOAK))) YOKE_TEST_SEED=$$(date +%s) $(BUILD)/tests/rpc/rpc_chaos_test
	YOKE_SHARED_MEMORY=0 YOKE_CHAOS=$(SOAK) YOKE_TEST_SEED=$$(date +%s) $(BUILD)/tests/rpc/rpc_chaos_test
	YOKE_TEST_VERSIONS=$$((100 * $(SOAK))) $(BUILD)/tests/rpc/rpc_publish_test
	YOKE=$(BUILD)/yoke bash tests/soak/starts.sh $(SOAK)
	YOKE=$(BUILD)/yoke bash tests/soak/recipe_seeds.sh
	YOKE=$(BUILD)/yoke bash tests/soak/cartpole.sh
	YOKE=$(BUILD)/yoke bash tests/soak/restarts.sh $(SOAK_FAULTS)
	YOKE=$(BUILD)/yoke bash tests/soak/members.sh $(SOAK_FAULTS)
	YOKE=$(BUILD)/yoke bash tests/soak/nodes.sh $(SOAK_FAULTS)
	YOKE_KILLS=500 $(BUILD)/tests/checkpoint/group_kills_test
	YOKE=$(BUILD)/yoke YOKE_KILLS=1000 YOKE_TEST_SEED=$$(date +%s) $(BUILD)/tests/launch/roles_test
	YOKE=$(BUILD)/yoke YOKE_HANGS=100 YOKE_TEST_SEED=$$(date +%s) $(BUILD)/tests/observe/hangs_test
	YOKE=$(BUILD)/yoke $(BUILD)/bench/monitor 1000000 2
	YOKE_STOPS=500 $(BUILD)/tests/comm/breaking_test
	YOKE_STRANGERS=1000000 $(BUILD)/tests/net/descriptors_test
	for test in $(HOSTILE_TESTS); do YOKE=$(BUILD)/yoke YOKE_HOSTILE=1000 $$test || exit 1; done

HEADERS := $(wildcard include/yoke/*.h include/yoke/*.hpp)
# The pages of the manual are printed by the program, where it runs on this machine.
$(BUILD)/man/yoke.1: $(INSTALLED)/yoke scripts/make-manual
	$(call say,MAKE,$(@D)) scripts/make-manual $< $(@D)
MANDIR ?= $(PREFIX)/share/man
COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
install: $(INSTALLED)/libyoke.a $(INSTALLED)/libyoke.so $(INSTALLED)/yoke $(BUILD)/man/yoke.1 $(BACKENDS)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include/yoke $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 755 $(INSTALLED)/yoke $(DESTDIR)$(PREFIX)/bin/yoke
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include/yoke/
	install -m 644 $(INSTALLED)/libyoke.a $(DESTDIR)$(LIBDIR)/libyoke.a
	install -m 755 $(INSTALLED)/libyoke.so $(DESTDIR)$(LIBDIR)/libyoke.so.$(VERSION)
	$(if $(BACKENDS),install -d $(DESTDIR)$(LIBDIR)/yoke && install -m 755 $(BACKENDS) $(DESTDIR)$(LIBDIR)/yoke/)
	ln -sf libyoke.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libyoke.so.$(SOVERSION)
	ln -sf libyoke.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libyoke.so
	[ ! -e $(BUILD)/man/yoke.1 ] || { install -d $(DESTDIR)$(MANDIR)/man1 && install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(MANDIR)/man1/; }
	install -d $(DESTDIR)$(COMPLETIONS) && install -m 644 scripts/yoke.bash $(DESTDIR)$(COMPLETIONS)/yoke
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include' '' 'Name: yoke' \
	    'Description: Trains neural networks on many devices' 'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
	    'Libs: -L$${libdir} -lyoke' 'Libs.private: $(LIBS) -pthread' > $(DESTDIR)$(LIBDIR)/pkgconfig/yoke.pc
	install -d $(DESTDIR)$(LIBDIR)/cmake/yoke
	for file in yokeConfig yokeConfigVersion; do sed -e 's#@PREFIX@#$(PREFIX)#g' -e 's#@LIBDIR@#$(LIBDIR)#g' -e 's#@VERSION@#$(VERSION)#g' \
	    -e 's#@SOVERSION@#$(SOVERSION)#g' -e 's#@LIBS@#$(subst $(space),;,$(strip $(LIBS:-l%=%)))#g' scripts/$$file.cmake.in \
	    > $(DESTDIR)$(LIBDIR)/cmake/yoke/$$file.cmake || exit 1; done
	@scripts/after-install '$(DESTDIR)' '$(LIBDIR)'

# What is committed, as a file that builds without git; the same commit gives the same bytes.
DIST := $(BUILD)/yoke-$(VERSION).tar.gz
PACK ?= gzip -n -9
dist:
	@mkdir -p $(BUILD)
	@git -C . rev-parse --verify -q HEAD^0 > /dev/null 2>&1 || { echo 'make dist: this folder is no checkout of git, whose files it packs' >&2; exit 1; }
	@git diff --quiet HEAD -- || echo 'make dist: what is not committed is left out' >&2
	git archive --format=tar --prefix=yoke-$(VERSION)/ HEAD | $(PACK) > $(DIST).part && mv $(DIST).part $(DIST)
	@echo "$(DIST)"

# Debian's packages of what is committed, in build/deb.
deb:
	scripts/make-deb '$(abspath $(BUILD))/deb'

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/yoke $(DESTDIR)$(LIBDIR)/libyoke.a $(DESTDIR)$(LIBDIR)/libyoke.so \
	    $(DESTDIR)$(LIBDIR)/libyoke.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libyoke.so.$(VERSION) \
	    $(DESTDIR)$(LIBDIR)/pkgconfig/yoke.pc $(DESTDIR)$(LIBDIR)/yoke/yoke-*.so $(HEADERS:include/%=$(DESTDIR)$(PREFIX)/include/%)
	rm -f $(DESTDIR)$(MANDIR)/man1/yoke.1 $(DESTDIR)$(MANDIR)/man1/yoke-*.1 $(DESTDIR)$(COMPLETIONS)/yoke
	rm -f $(DESTDIR)$(LIBDIR)/cmake/yoke/yokeConfig.cmake $(DESTDIR)$(LIBDIR)/cmake/yoke/yokeConfigVersion.cmake
	-rmdir $(DESTDIR)$(LIBDIR)/cmake/yoke
	-rmdir $(DESTDIR)$(PREFIX)/include/yoke
	-rmdir --ignore-fail-on-non-empty $(DESTDIR)$(LIBDIR)/yoke 2> /dev/null

clean:
	rm -rf $(BUILD)

help:
	@printf '%s\n' \
	    'make            the library, the program and the examples, in build/' \
	    'make run        install what is missing, build, and train LeNet on the built-in data (ARGS=... for yoke train)' \
	    'make test       install what is missing, build, and run all tests (ONLY="pool conv*", SANITIZE=thread)' \
	    'make test-emulator  GPUs emulated on the host: their kernels, and all tests with cuda:0 as the default device (SEEDS=1)' \
	    'make check      layers, layout, comments, a test of every public function, and builds without warnings by gcc and clang' \
	    'make bench      speed, next to PyTorch where it is installed (ARGS=... for bench/run, OPS_ARGS=... for bench/ops)' \
	    'make fuzz       feed the parsers of files with mutated input for FUZZ_SECONDS each' \
	    'make nightly    what .ci/run has no time for: empty Debian whole, aarch64, all sets under sanitizers, fuzzing (ARGS="NAME...")' \
	    'make soak       SOAK (1000) random faults of ranks, as many starts and stops of jobs, and SOAK_FAULTS of restarted jobs' \
	    'make install    to PREFIX (/usr/local), under DESTDIR; make uninstall takes it away' \
	    'make dist       the committed files as build/yoke-VERSION.tar.gz, which builds without git' \
    'make deb        Debian packages of the committed files, in build/deb' \
    'make clean      remove the build folder'
