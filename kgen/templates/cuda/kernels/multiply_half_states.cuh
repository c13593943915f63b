// The products of 16 rows of a weight and of `count` states of 16 bits in shared memory, 16 states at a time, over
// TILES of 16 of k. A lane has the numbers of the weight that `multiply` (mma) takes from it. States lie PITCH apart.
// The sum of row r and state b goes to products[r * S + b], as `finish` makes it of the lane's first or second row.
struct AsItIs {
    __device__ float operator()(const float sum, int) const { return sum; }
};

template <int TILES, int PITCH, int S, typename Multiply, typename Finish = AsItIs>
__device__ __forceinline__ void multiply_half_states(
    const uint32_t (&weights)[TILES][4], const uint32_t states, const int count, float* products,
    const Multiply multiply, const Finish finish = Finish()
) {
    const int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int first = 0; first < count; first += 16) {
        const uint32_t from = states + ((first + lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8) * 2;
        float sums[2][4] = {};
        #pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            uint32_t found[4];
            load_matrices(found, from + tile * 32);
            #pragma unroll
            for (int i = 0; i < 2; ++i) multiply(sums[i], weights[tile], found[2 * i], found[2 * i + 1]);
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = lane / 4 + i % 4 / 2 * 8, b = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (b < count) products[row * S + b] = finish(sums[i / 4][i % 4], i % 4 / 2);
        }
    }
}
