// Sums of R rows of x, x_step apart, times a panel of k rows of W columns, panel_step apart, to rows out_step apart.
// They stay in registers for parts of k, whose sums are added up.
template <int R, int W>
__attribute__((always_inline)) inline void multiply_strided(
    const float* x, const int x_step, const float* panel, const int panel_step, const int k, float* out,
    const int out_step
) {
    typedef float half_row __attribute__((vector_size(2 * W), aligned(4)));
    for (int begin = 0; begin < k; begin += 256) {
        const int end = begin + 256 < k ? begin + 256 : k;
        half_row found[R][2] = {};
        for (int at = begin; at < end; ++at) {
            const float* const line = panel + at * static_cast<long long>(panel_step);
            // The panel may come from the second cache, and the hardware foresees too little of it.
            __builtin_prefetch(line + 12 * static_cast<long long>(panel_step));
            __builtin_prefetch(line + 12 * static_cast<long long>(panel_step) + W / 2);
            const half_row left = *reinterpret_cast<const half_row*>(line);
            const half_row right = *reinterpret_cast<const half_row*>(line + W / 2);
            #pragma GCC unroll 16
            for (int i = 0; i < R; ++i) {
                found[i][0] += x[i * x_step + at] * left;
                found[i][1] += x[i * x_step + at] * right;
            }
        }
        if (begin) {
            #pragma GCC unroll 16
            for (int i = 0; i < R; ++i) {
                half_row* total = reinterpret_cast<half_row*>(out + i * out_step);
                total[0] += found[i][0];
                total[1] += found[i][1];
            }
        } else {
            #pragma GCC unroll 16
            for (int i = 0; i < R; ++i) {
                half_row* total = reinterpret_cast<half_row*>(out + i * out_step);
                total[0] = found[i][0];
                total[1] = found[i][1];
            }
        }
    }
}
