// The products of 16 rows of a weight and of `count` states, both as two float16 terms, over TILES of 16 of k: three
// products, in float32 sums that take few tiles each. States lie in shared memory, PITCH elements apart, and their low
// terms LOW elements behind. `exponents` scaled the lane's two rows, and `state_exponents[b]` state b. The sum of row r
// and state b goes to products[r * S + b].
template <int TILES, int PITCH, int LOW, int S>
__device__ __forceinline__ void multiply_split_states(
    const uint32_t (&high)[TILES][4], const uint32_t (&low)[TILES][4], const int (&exponents)[2], const uint32_t states,
    const int* state_exponents, const int count, float* products
) {
    constexpr int FLUSHED = 4;  // tiles whose sums the tensor cores keep, which they truncate
    const int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int first = 0; first < count; first += 16) {
        const uint32_t from = states + ((first + lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8) * 2;
        float sums[2][4] = {}, parts[2][4];
        #pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            uint32_t of_high[4], of_low[4];
            load_matrices(of_high, from + tile * 32);
            load_matrices(of_low, from + LOW * 2 + tile * 32);
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                float (&part)[4] = parts[i];
                if (tile % FLUSHED == 0) mma<true>(part, low[tile], of_high[2 * i], of_high[2 * i + 1]);
                else mma<false>(part, low[tile], of_high[2 * i], of_high[2 * i + 1]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) mma<false>(parts[i], high[tile], of_low[2 * i], of_low[2 * i + 1]);
            #pragma unroll
            for (int i = 0; i < 2; ++i) mma<false>(parts[i], high[tile], of_high[2 * i], of_high[2 * i + 1]);
            if (tile % FLUSHED == FLUSHED - 1 || tile == TILES - 1) {
                #pragma unroll
                for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] += parts[i / 4][i % 4];
            }
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = lane / 4 + i % 4 / 2 * 8, b = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (b < count) {
                products[row * S + b] = scale_back(sums[i / 4][i % 4], exponents[i % 4 / 2], state_exponents[b]);
            }
        }
    }
}
