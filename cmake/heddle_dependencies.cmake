# All that heddle is built with besides the compiler and what is optional. What is missing is reported in one sentence with the names of
# the Debian packages, those of tools/packages.txt.

# Notes Debian's `package` as missing unless `found`; `what` is the name and version that people know.
macro(heddle_need package what found)
  if(NOT (${found}))
    list(APPEND HEDDLE_MISSING_PACKAGES ${package})
    list(APPEND HEDDLE_MISSING "${what}")
  endif()
endmacro()

# Ends the configuration where something is missing. tools/build repeats the sentence when CMake has said its own last words.
function(heddle_stop_if_missing)
  set(file ${CMAKE_BINARY_DIR}/missing.txt)
  if(NOT HEDDLE_MISSING)
    file(REMOVE ${file})
    return()
  endif()
  list(JOIN HEDDLE_MISSING ", " missing)
  list(JOIN HEDDLE_MISSING_PACKAGES " " packages)
  set(again "")
  if(DEFINED SKBUILD)
    set(again ", then run pip again")
  endif()
  set(sentence "heddle needs ${missing} (missing or too old): on Debian, run `apt-get install ${packages}`${again}")
  file(WRITE ${file} "${sentence}\n")
  message(FATAL_ERROR "  ${sentence}")  # CMake leaves a line that begins with spaces in one piece
endfunction()

# find_package() and pkg_check_modules() without their own words.
macro(heddle_find_package package what name version)
  find_package(${name} ${version} QUIET ${ARGN})
  heddle_need(${package} "${what} ${version}" ${name}_FOUND)
endmacro()

macro(heddle_find_module package what prefix module version)
  if(PkgConfig_FOUND)
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module}>=${version})
    heddle_need(${package} "${what} ${version}" ${prefix}_FOUND)
  endif()
endmacro()

find_package(Threads REQUIRED)
find_path(HEDDLE_DLPACK dlpack/dlpack.h)
if(HEDDLE_GPU_CHECK)
  include(heddle_gpu_check)
else()
  heddle_find_package(libhwy-dev Highway HWY 1.0.3)
  heddle_need(libdlpack-dev DLPack HEDDLE_DLPACK)
endif()
if(NOT HEDDLE_GPU_CHECK)
  heddle_find_package(libboost1.81-dev Boost Boost 1.81)  # its headers: JSON, and for the server Beast and Asio
  if(HEDDLE_BUILD_TESTS OR HEDDLE_BUILD_APPS)  # tests and heddle-bench
    heddle_find_package(nlohmann-json3-dev nlohmann-json nlohmann_json 3.11)
  endif()
  find_package(PkgConfig QUIET)  # Debian's PCRE2, utf8proc, xxHash and libedit bring no CMake packages
  heddle_need(pkg-config pkg-config PkgConfig_FOUND)
  heddle_find_module(libpcre2-dev PCRE2 PCRE2 libpcre2-8 10.42)
  heddle_find_module(libutf8proc-dev utf8proc UTF8PROC libutf8proc 2.6)  # what 2.8 calls itself
  heddle_find_module(libxxhash-dev xxHash XXHASH libxxhash 0.8)  # its header alone
  if(HEDDLE_BUILD_APPS)
    heddle_find_package(libcli11-dev CLI11 CLI11 2.1)
    heddle_find_package(libspdlog-dev spdlog spdlog 1.10)
    heddle_find_module(libedit-dev libedit EDIT libedit 3.1)
    if(HEDDLE_BUILD_SERVER)
      heddle_find_package(libssl-dev OpenSSL OpenSSL 3.0)
      heddle_find_module(libtomlplusplus-dev toml++ TOML tomlplusplus 3.3)  # its headers alone
      heddle_find_module(prometheus-cpp-dev prometheus-cpp PROMETHEUS prometheus-cpp-core 1.0)
    endif()
    # What fetches from a hub or from S3, where its libraries are found.
    find_package(CURL 7.85 QUIET)
    find_package(OpenSSL 3.0 QUIET)
    set(default OFF)
    if(CURL_FOUND AND OpenSSL_FOUND)
      set(default ON)
    endif()
    option(HEDDLE_FETCH "Build what fetches models and adapters, which needs libcurl and OpenSSL" ${default})
    if(HEDDLE_FETCH)
      heddle_need(libcurl4-openssl-dev "libcurl 7.85" CURL_FOUND)
      heddle_need(libssl-dev "OpenSSL 3.0" OpenSSL_FOUND)
    endif()
    heddle_find_package(libbenchmark-dev google-benchmark benchmark 1.7)
  endif()
endif()
if(HEDDLE_BUILD_TESTS)
  enable_testing()
  heddle_find_package(libgtest-dev GoogleTest GTest 1.12)
endif()
heddle_stop_if_missing()
