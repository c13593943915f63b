// Launches as many teams of blocks as run beside each other, at most `most`: the blocks of a team wait for each other.
template <auto kernel, int threads, int shared_bytes, typename... Arguments>
static int launch_teams(const long long most, const int blocks, const cudaStream_t stream, Arguments... arguments) {
    const long long fit = resident_blocks<kernel, threads, shared_bytes>() / blocks;
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
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}
