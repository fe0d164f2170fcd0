/* Made by make_optimizers.py with PyTorch; do not edit. */
enum { GOLDEN_STEPS = 7, GOLDEN_SIZE = 5 };
static const double golden_start[GOLDEN_SIZE] = {0.5, -1.25, 2.0, 0.0, -0.03125};
static const struct {
    yk__sgd p;
    double after[GOLDEN_SIZE];
} golden_sgd[] = {
    {{.lr = 0.1},
     {0x1.e666666666667p-2, -0x1.299999999999ap+0, 0x1.ecccccccccccdp+0, 0x1.3333333333334p-5, -0x1.3333333333335p-6}},
    {{.lr = 0.1, .weight_decay = 0.05},
     {0x1.d3dde3e94ec25p-2, -0x1.1ede439210e0bp+0, 0x1.dba2e4052e8a9p+0, 0x1.2a1f1597bb4dbp-5, -0x1.1787b7759ec59p-6}},
    {{.lr = 0.1, .momentum = 0.9},
     {0x1.2adfeda661283p-1, -0x1.f577186551937p-1, 0x1.a78c20d5629d7p+0, 0x1.7cffcb26da5f9p-3, -0x1.6b3ff766d44aap-4}},
    {{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .dampening = 0.25},
     {0x1.2e91a4828be26p-1, -0x1.df41881c26331p-1, 0x1.7cb81958374fcp+0, 0x1.335d5f90470dfp-3, -0x1.0af6045ee6978p-3}},
    {{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .nesterov = true},
     {0x1.e0aabdc2fc780p-2, -0x1.8622b5695d9acp-1, 0x1.5e9e0a9134cc9p+0, 0x1.8460ce024eb34p-3, -0x1.c0512c83b6c58p-5}},
    {{.lr = 0.1, .momentum = 0.5, .maximize = true, .weight_decay = 0.05},
     {0x1.ee83a732bdcf1p-2, -0x1.51e2e7ff95796p+0, 0x1.012ac19a0e69bp+1, -0x1.ab6232d738229p-5, -0x1.977ae0e6f8d4bp-5}},
};
static const struct {
    yk__adam p;
    double after[GOLDEN_SIZE];
} golden_adam[] = {
    {{.decoupled = false, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08, .weight_decay = 0.0, .lr = 0.01},
     {0x1.07a29430feb69p-1, -0x1.3a9d84b11e322p+0, 0x1.f7fcadd3f55fap+0, 0x1.bc1984c4e8bc7p-6, -0x1.7d733c2c4647bp-5}},
    {{.decoupled = false, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08, .weight_decay = 0.1, .lr = 0.01},
     {0x1.04474b5bc39f7p-1, -0x1.34631f2b44364p+0, 0x1.f3904f9b19e47p+0, 0x1.b8f04389d7711p-6, -0x1.788af208550f8p-5}},
    {{.decoupled = false, .beta1 = 0.8, .beta2 = 0.95, .eps = 0.001, .weight_decay = 0.0, .lr = 0.02, .amsgrad = true},
     {0x1.0bc223a8bd50dp-1, -0x1.353affca874e4p+0, 0x1.f1a670da60025p+0, 0x1.8f2e238f8615bp-5, -0x1.c0b75b27d41c5p-5}},
    {{.decoupled = false, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08, .weight_decay = 0.1, .lr = 0.01, .maximize = true},
     {0x1.ea87787d1a922p-2, -0x1.3dd873487cb6dp+0, 0x1.009754d3ba3c6p+1, -0x1.b8f04389d7711p-6, -0x1.00c83dbae65d9p-6}},
    {{.decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08, .weight_decay = 0.01, .lr = 0.01},
     {0x1.0773855851f64p-1, -0x1.3a64923c22b37p+0, 0x1.f7a1d07cd1859p+0, 0x1.bbe24d779cdeap-6, -0x1.7d3152580799ep-5}},
    {{.decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08, .weight_decay = 0.1, .lr = 0.01},
     {0x1.05cd42886c3cap-1, -0x1.38659669babf6p+0, 0x1.f4727d81750dep+0, 0x1.b9f264060a716p-6, -0x1.7ae1c01ad33b4p-5}},
    {{.decoupled = true, .beta1 = 0.8, .beta2 = 0.95, .eps = 0.001, .weight_decay = 0.01, .lr = 0.02, .amsgrad = true},
     {0x1.0b621784ce123p-1, -0x1.34c9e417e586cp+0, 0x1.f0f2490c18094p+0, 0x1.8ec3ee519e727p-5, -0x1.c012ec32b7b7ep-5}},
    {{.decoupled = true, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08, .weight_decay = 0.1, .lr = 0.01, .maximize = true},
     {0x1.ed3ff7d36cbe3p-2, -0x1.4322f7a4f0833p+0, 0x1.0233ffb16814cp+1, -0x1.b9f264060a716p-6, -0x1.0316fcae9ec10p-6}},
};
