// A function of the driver, found at run time so that nothing links against the driver.
static void* driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &status);
#else
    cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &status);
#endif
    return function;
}

// How rows of `row_bytes` bytes are permuted in shared memory.
constexpr CUtensorMapSwizzle swizzle_of(const int row_bytes) {
    return row_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
        : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
        : CU_TENSOR_MAP_SWIZZLE_32B;
}

// One of the windows' dimensions: the image's elements, the first window's element and the last one's, and the step
// between windows.
struct Along {
    int size, first, last, stride;
};

// Describes windows that move over images [images][...][channels] of float16 for TMA, in columns of `pixels` windows
// and BLOCK_K channels. `along` has RANK dimensions, the innermost first.
template <int RANK, int BLOCK_K>
static bool describe_windows(
    CUtensorMap& map, const void* staged, const int channels, const long long images, const Along* along,
    const int pixels
) {
    static const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(
        driver_function("cuTensorMapEncodeIm2col")
    );
    if (!encode) return false;
    cuuint64_t sizes[RANK + 2] = {static_cast<cuuint64_t>(channels)},
        strides[RANK + 1] = {static_cast<cuuint64_t>(channels) * 2};
    cuuint32_t steps[RANK + 2] = {1};
    int lower[RANK], upper[RANK];
    for (int i = 0; i < RANK; ++i) {
        sizes[i + 1] = along[i].size;
        strides[i + 1] = strides[i] * along[i].size;
        steps[i + 1] = along[i].stride;
        lower[i] = along[i].first, upper[i] = along[i].last - (along[i].size - 1);
    }
    sizes[RANK + 1] = images, steps[RANK + 1] = 1;
    return encode(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, RANK + 2, const_cast<void*>(staged), sizes, strides, lower, upper,
        BLOCK_K, pixels, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(2 * BLOCK_K),
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    ) == CUDA_SUCCESS;
}

// Describes a matrix of float16, rows x k, for TMA, in boxes of box_rows x BLOCK_K.
template <int BLOCK_K>
static bool describe_rows(
    CUtensorMap& map, const void* matrix, const long long rows, const long long k, const int box_rows
) {
    static const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        driver_function("cuTensorMapEncodeTiled")
    );
    if (!encode) return false;
    const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows), 1};
    const cuuint64_t strides[2] = {static_cast<cuuint64_t>(k) * 2, static_cast<cuuint64_t>(rows * k) * 2};
    const cuuint32_t box[3] = {BLOCK_K, static_cast<cuuint32_t>(box_rows), 1}, steps[3] = {1, 1, 1};
    return encode(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(matrix), sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(2 * BLOCK_K), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    ) == CUDA_SUCCESS;
}
