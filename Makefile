# yoke's build. `make help` lists the targets; knobs: BUILD, SANITIZE=address,undefined, CC, CFLAGS, CUDA=0.
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := all
SHELL := /bin/bash

VERSION  := 0.1.0
SANITIZE ?=
BUILD    ?= build$(if $(SANITIZE),/$(subst $(comma),-,$(SANITIZE)))
comma    := ,
PREFIX   ?= /usr/local
ARCH     := $(shell uname -m)

ifeq ($(origin CC),default)
CC := gcc
endif
OPTIMISE ?= -O3
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef \
            -Wwrite-strings -Werror=implicit-function-declaration
CFLAGS   ?= $(OPTIMISE) -g
YK_CFLAGS := -std=gnu11 $(WARNINGS) -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -pthread \
             -D_GNU_SOURCE -Iinclude -Isrc -MMD -MP
YK_LDFLAGS := -pthread
ifneq ($(SANITIZE),)
YK_CFLAGS  += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all -DYK__SANITIZED=1
YK_LDFLAGS += -fsanitize=$(SANITIZE)
endif
LIBS := -ldnnl -ljansson -ljpeg -lpng -lz -lxxhash -lm

# One source, several instruction sets: see the note in src/device/cpu/cpu.h.
CPU_ISAS := base
ifeq ($(ARCH),x86_64)
CPU_ISAS += v3 v4
endif
ISA_FLAGS_base :=
ISA_FLAGS_v3   := -march=x86-64-v3
ISA_FLAGS_v4   := -march=x86-64-v4 -mprefer-vector-width=512

KERNEL_SOURCES := $(filter-out src/device/cpu/cpu_backend.c,$(wildcard src/device/cpu/*.c))
LIB_SOURCES    := $(filter-out $(KERNEL_SOURCES),$(wildcard $(foreach d,base net device device/cpu tensor autograd \
                  ops nn optim data checkpoint comm parallel rpc observe,src/$(d)/*.c)))
CLI_SOURCES    := $(wildcard src/cli/*.c)
TEST_SOURCES   := $(wildcard tests/*/*_test.c)
EXAMPLE_SOURCES := $(wildcard examples/*.c)

LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o) \
               $(foreach isa,$(CPU_ISAS),$(KERNEL_SOURCES:src/%.c=$(BUILD)/$(isa)/%.o))
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
TEST_SUPPORT := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
TESTS       := $(TEST_SOURCES:%.c=$(BUILD)/%)
EXAMPLES    := $(EXAMPLE_SOURCES:%.c=$(BUILD)/%)

.PHONY: all lib cli tests examples
all: lib cli examples
lib: $(BUILD)/libyoke.a $(BUILD)/libyoke.so
cli: $(BUILD)/yoke
tests: $(TESTS)
examples: $(EXAMPLES)

$(BUILD)/libyoke.a: $(LIB_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/libyoke.so: $(LIB_OBJECTS)
	$(CC) -shared $(YK_LDFLAGS) $(LDFLAGS) -Wl,-soname,libyoke.so.0 -o $@ $^ $(LIBS)

$(BUILD)/yoke: $(CLI_OBJECTS) $(BUILD)/libyoke.a
	$(CC) $(YK_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_SUPPORT) $(BUILD)/libyoke.a
	$(CC) $(YK_LDFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBS)

$(BUILD)/examples/%: $(BUILD)/examples/%.o $(BUILD)/libyoke.a
	$(CC) $(YK_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(YK_CFLAGS) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

define ISA_RULE
$(BUILD)/$(1)/%.o: src/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(YK_CFLAGS) $$(CFLAGS) $$(CPPFLAGS) $$(ISA_FLAGS_$(1)) -DYK__ISA=$(1) -c -o $$@ $$<
endef
$(foreach isa,$(CPU_ISAS),$(eval $(call ISA_RULE,$(isa))))

.SECONDARY:
-include $(patsubst %.o,%.d,$(LIB_OBJECTS) $(CLI_OBJECTS) $(TEST_SUPPORT)) $(TESTS:%=%.d) $(EXAMPLES:%=%.d)
