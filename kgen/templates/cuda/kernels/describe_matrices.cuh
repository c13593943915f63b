// Describes `count` matrices of rows x cols elements of 16 bits for TMA, in boxes of box_rows x 64 of one of them whose
// rows of 128 bytes are swizzled. Beyond the ends of a matrix are zeros.
static bool describe_matrices(
    CUtensorMap& map, const void* matrices, const long long count, const long long rows, const long long cols,
    const int box_rows
) {
    static const auto encode = find_encoder();
    if (!encode) return false;
    const cuuint64_t sizes[3] = {
        static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(count)
    };
    const cuuint64_t strides[2] = {static_cast<cuuint64_t>(cols) * 2, static_cast<cuuint64_t>(rows * cols) * 2};
    const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    return encode(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(matrices), sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    ) == CUDA_SUCCESS;
}
