# Finds nvcc and finds out what it can do. Functions only, so that `cmake -P` can test them; a problem is a sentence in a
# variable, and the caller decides whether it ends the configuration.

set(TILEWISE_CUDA_MIN_VERSION 12.0)  # the first nvcc that compiles C++20
set(TILEWISE_CUDA_INSTALL_HINT
    "Install the CUDA toolkit 12.0 or newer (13.0 is what we test) from https://developer.nvidia.com/cuda-downloads; the packages cuda-nvcc-13-0 and cuda-cudart-dev-13-0 are enough. If it is installed, put its bin folder into PATH, or set CUDACXX to its nvcc")

# Where nvcc is: CUDACXX, PATH, then CUDA_HOME, CUDA_PATH and the toolkit's usual place. Empty if it is nowhere.
function(tilewise_find_nvcc out_nvcc)
    if(CMAKE_CUDA_COMPILER)
        set(${out_nvcc} "${CMAKE_CUDA_COMPILER}" PARENT_SCOPE)
        return()
    endif()
    find_program(TILEWISE_NVCC NAMES $ENV{CUDACXX} nvcc
        PATHS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin DOC "NVIDIA's CUDA compiler")
    mark_as_advanced(TILEWISE_NVCC)
    if(TILEWISE_NVCC)
        set(${out_nvcc} "${TILEWISE_NVCC}" PARENT_SCOPE)
    else()
        set(${out_nvcc} "" PARENT_SCOPE)
    endif()
endfunction()

# Reads the version (as 13.0.88) and the numbers of the architectures (as 80) that `nvcc` knows.
function(tilewise_query_nvcc nvcc out_version out_known out_problem)
    set(problem "")
    set(version "")
    set(known)
    execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE result)
    if(text MATCHES "release [0-9.]+, V([0-9.]+)")
        set(version "${CMAKE_MATCH_1}")
    endif()
    if(NOT result EQUAL 0 OR NOT version)
        set(problem "${nvcc} is not NVIDIA's compiler, or does not run. ${TILEWISE_CUDA_INSTALL_HINT}")
    elseif(version VERSION_LESS TILEWISE_CUDA_MIN_VERSION)
        set(problem "${nvcc} is version ${version}, too old for C++20. ${TILEWISE_CUDA_INSTALL_HINT}")
    else()
        foreach(option IN ITEMS --list-gpu-arch --list-gpu-code)
            execute_process(COMMAND "${nvcc}" ${option} OUTPUT_VARIABLE text ERROR_QUIET)
            string(REGEX MATCHALL "(compute|sm)_[0-9]+" names "${text}")
            list(TRANSFORM names REPLACE "^[a-z]+_" "")
            list(APPEND known ${names})
        endforeach()
        list(REMOVE_DUPLICATES known)
        list(SORT known COMPARE NATURAL)
    endif()
    set(${out_version} "${version}" PARENT_SCOPE)
    set(${out_known} "${known}" PARENT_SCOPE)
    set(${out_problem} "${problem}" PARENT_SCOPE)
endfunction()

# Compiles a few lines of C++20 with `flags`: a host compiler that nvcc does not take, or a target that it lists but
# cannot compile, shows here and not in the middle of the build. A success is remembered.
function(tilewise_probe_nvcc nvcc flags folder out_problem)
    set(${out_problem} "" PARENT_SCOPE)
    string(SHA1 key "${nvcc} ${flags}")
    if(TILEWISE_CUDA_PROBED STREQUAL key)
        return()
    endif()
    file(WRITE "${folder}/probe.cu" "#include <concepts>
template <std::integral T> __global__ void probe(T* out) { *out = T(1); }
template __global__ void probe<int>(int*);
")
    execute_process(COMMAND "${nvcc}" -std=c++20 ${flags} -c "${folder}/probe.cu" -o "${folder}/probe.o"
        OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE result)
    if(result EQUAL 0)
        set(TILEWISE_CUDA_PROBED "${key}" CACHE INTERNAL "what nvcc has compiled C++20 with")
        return()
    endif()
    string(STRIP "${text}" text)
    string(SUBSTRING "${text}" 0 600 text)
    list(JOIN flags " " flags)
    set(${out_problem} "${nvcc} cannot compile C++20 with ${flags}:\n${text}\nA host compiler that this nvcc takes can be named in CUDAHOSTCXX. ${TILEWISE_CUDA_INSTALL_HINT}"
        PARENT_SCOPE)
endfunction()
