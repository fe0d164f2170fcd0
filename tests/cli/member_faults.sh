#!/bin/bash
# member_faults.sh - a few random faults of the processes of a program that survives, of one seed: the short form of the
# soak (tests/soak/members.sh).
exec bash "$(dirname "${BASH_SOURCE[0]}")/../soak/members.sh" 10 3
