// Eight columns of a row of COLS, zeros beyond its end. Rows begin at multiples of 16 bytes if COLS is a multiple of 4.
template <int COLS>
__device__ __forceinline__ void load_group(float (&v)[8], const float* __restrict__ row, const int col) {
    if (COLS % 4 == 0 && col + 8 <= COLS) {
        const float4 low = __ldcs(reinterpret_cast<const float4*>(row + col));
        const float4 high = __ldcs(reinterpret_cast<const float4*>(row + col + 4));
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
        #pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = col + j < COLS ? row[col + j] : 0.0f;
    }
}
