template <auto kernel, int threads, int shared_bytes>
static int ask_resident_blocks(const int device) {
    int count = 0, blocks = 0;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes);
    return count * blocks;
}

// How many blocks of a kernel run beside each other on the current device.
template <auto kernel, int threads, int shared_bytes>
static int resident_blocks() { return asked_once<ask_resident_blocks<kernel, threads, shared_bytes>>(); }
