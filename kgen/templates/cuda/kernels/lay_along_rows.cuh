// Lanes whose numbers differ in this bit exchange: the lower one has both of a, the upper one both of b.
__device__ __forceinline__ void exchange(float& a, float& b, const int bit) {
    const bool upper = threadIdx.x & bit;
    const float taken = __shfl_xor_sync(0xffffffffu, upper ? a : b, bit);
    a = upper ? taken : a;
    b = upper ? b : taken;
}

// The places of a strip of 16 rows and 8 GROUPS columns that a lane finishes: WIDTH neighbouring columns of each of
// CHUNKS chunks in ROWS rows. LANES lanes lie along a row, side by side in memory. With a WIDTH of 2 they are those
// that tensor cores leave there: lane l has of each group of 8 columns g
//     row l / 4:      columns 8 g + 2 (l % 4) and the next in sums[4 g], sums[4 g + 1]
//     row l / 4 + 8:  the same columns in sums[4 g + 2], sums[4 g + 3]
template <int COLUMNS, int GROUPS>
struct LanesOfStrip {
    static constexpr int WIDTH = COLUMNS;
    static constexpr int LANES = WIDTH == 2 || GROUPS < WIDTH ? 4 : 8;
    static constexpr int COLS = WIDTH * LANES, CHUNKS = 8 * GROUPS / COLS;
    static constexpr int PAIRS = WIDTH / 2, SIDE_BY_SIDE = LANES / 4, ROWS = 2 * SIDE_BY_SIDE;
    static_assert(CHUNKS * COLS == 8 * GROUPS, "lanes fill whole chunks");

    // The first column of a chunk that a lane along the row has.
    static __device__ __forceinline__ constexpr int column_of(const int lane) {
        return WIDTH == 4 ? lane % 2 * 8 + lane / 2 % 2 * 4 + lane / 4 * 16 : lane * WIDTH;
    }

    static __device__ __forceinline__ int first_col() {
        return column_of(threadIdx.x % LANES);
    }

    static __device__ __forceinline__ int first_row() {
        return threadIdx.x % 32 / LANES * SIDE_BY_SIDE;
    }

    // How far a row lies behind the first one.
    static __device__ __forceinline__ constexpr int behind(const int row) {
        return row / SIDE_BY_SIDE * 8 + row % SIDE_BY_SIDE;
    }

    // The place of an element in the lane's sums.
    static __device__ __forceinline__ constexpr int place(const int row, const int chunk, const int j) {
        const int group = (chunk * SIDE_BY_SIDE + row % SIDE_BY_SIDE) * PAIRS + j / 2;
        return 4 * group + 2 * (row / SIDE_BY_SIDE) + j % 2;
    }
};

// Brings the sums of a strip to those lanes: pairs of columns change places with neighbouring groups, then rows with
// groups.
template <int WIDTH, int GROUPS>
__device__ __forceinline__ void lay_along_rows(float (&sums)[4 * GROUPS]) {
    using Lanes = LanesOfStrip<WIDTH, GROUPS>;
    #pragma unroll
    for (int apart = 1; apart < Lanes::PAIRS * Lanes::SIDE_BY_SIDE; apart *= 2) {
        #pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            if (group & apart) continue;
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                exchange(sums[4 * group + i], sums[4 * (group + apart) + i], apart < Lanes::PAIRS ? apart : 4);
            }
        }
    }
}
