// Writes a block of 16 x 16 elements turned: rows, `stride` apart, become columns of lines that are WIDTH apart.
// In each of four steps, blocks of half the size off the diagonal change places in registers.
template <int WIDTH>
static inline void turn_block(const float* from, const long long stride, float* to) {
    typedef float line __attribute__((vector_size(64), aligned(4)));
    typedef int places __attribute__((vector_size(64)));
    line lines[16];
    for (int i = 0; i < 16; ++i) lines[i] = *reinterpret_cast<const line*>(from + i * stride);
    #pragma GCC unroll 4
    for (int half = 8; half > 0; half /= 2) {
        places first, second;
        #pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) {
            first[j] = j & half ? 16 + j - half : j;
            second[j] = j & half ? 16 + j : j + half;
        }
        #pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            if (i & half) continue;
            const line a = lines[i], b = lines[i + half];
            lines[i] = __builtin_shuffle(a, b, first);
            lines[i + half] = __builtin_shuffle(a, b, second);
        }
    }
    for (int i = 0; i < 16; ++i) *reinterpret_cast<line*>(to + i * WIDTH) = lines[i];
}
