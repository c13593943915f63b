// Launches as many teams of blocks as run beside each other, at most `most`: the blocks of a team wait for each other.
template <typename... Parameters, typename... Arguments>
static int launch_teams(
    void (*kernel)(Parameters...), const long long most, const int blocks, const int threads, const int shared_bytes,
    const cudaStream_t stream, Arguments... arguments
) {
    int device, multiprocessors, resident;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes);
    const long long fit = static_cast<long long>(multiprocessors) * resident / blocks;
    const unsigned teams = static_cast<unsigned>(most < fit ? most : fit);
    if (teams == 0) return cudaErrorCooperativeLaunchTooLarge;
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(teams * blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &together;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}
