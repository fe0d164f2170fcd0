#!/bin/bash
# environment.sh - docs/environment.md has each variable that the sources read, and none that they do not know.
root=$PWD
. tests/support/tap.bash
cd "$root/src" || exit 1

# Names that are given to getenv, those that are handed to it by way of a table or a parameter, and those of `yoke run`'s
# options. What is in capitals with the first word of a family of variables is one, wherever it stands.
families='YOKE|PET|NCCL|OMPI|PMI|PMIX|MPI|SLURM|CUDA|TORCHELASTIC|ROLE|GROUP|LOCAL|MASTER|WORLD|OMP|INIT|CONDA|VIRTUAL'
{
    grep -rhoE '(getenv|yk__env_int|is_set|is_on)\([^)"]*"[A-Z_]+"' . | grep -oE '"[A-Z_]+"'
    grep -rhoE '\.variable = "[A-Z_]+"' . | grep -oE '"[A-Z_]+"'
    grep -rhoE "\"($families)_[A-Z_]+\"" --include='*.c' .
    grep -hoE '"(RANK|WORLD_SIZE)"' host/rank_info.c
} | tr -d '"' | grep -vE '^(CUDA_ERROR|CUDA_R|NCCL_[A-Z]*_?UNIQUE)' | sort -u > "$work/read"
sed -n 's/^| \(`[^|]*\) |.*/\1/p' "$root/docs/environment.md" | grep -oE '`[A-Z_]+`' | tr -d '`' | sort > "$work/listed"
cd "$work" || exit 1
ok "variables were found in the sources" [ "$(wc -l < read)" -gt 60 ]
sort -u listed > listed.once
comm -23 read listed.once > out
ok "docs/environment.md has each variable that the sources read" [ ! -s out ]
comm -13 read listed.once > out
ok "and none that they do not know" [ ! -s out ]
uniq -d listed > out
ok "and each once" [ ! -s out ]
finish
