// Sums of R rows of x, k apart, times a panel of k rows of W columns. They stay in registers for parts of k, whose sums
// are added up.
template <int R, int W>
__attribute__((always_inline)) inline void multiply_rows(
    const float* x, const float* panel, const int k, float (*sums)[W]
) {
    typedef float half_row __attribute__((vector_size(2 * W), aligned(4)));
    for (int begin = 0; begin < k; begin += 256) {
        const int end = begin + 256 < k ? begin + 256 : k;
        half_row found[R][2] = {};
        for (int at = begin; at < end; ++at) {
            // The panel may come from the second cache, and the hardware foresees too little of it.
            __builtin_prefetch(panel + (at + 24) * W);
            __builtin_prefetch(panel + (at + 24) * W + W / 2);
            const half_row left = *reinterpret_cast<const half_row*>(panel + at * W);
            const half_row right = *reinterpret_cast<const half_row*>(panel + at * W + W / 2);
            #pragma GCC unroll 16
            for (int i = 0; i < R; ++i) {
                found[i][0] += x[static_cast<long long>(i) * k + at] * left;
                found[i][1] += x[static_cast<long long>(i) * k + at] * right;
            }
        }
        #pragma GCC unroll 16
        for (int i = 0; i < R; ++i) {
            half_row* total = reinterpret_cast<half_row*>(sums[i]);
            total[0] = begin ? total[0] + found[i][0] : found[i][0];
            total[1] = begin ? total[1] + found[i][1] : found[i][1];
        }
    }
}
