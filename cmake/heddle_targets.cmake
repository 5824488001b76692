# heddle_library() and heddle_op(): the functions that turn folders into targets. In every folder X_test.cpp is a test,
# X_bench.cpp a benchmark, X_fuzz.cpp a fuzz target, and every other .cpp belongs to the library.

if(HEDDLE_BUILD_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  add_library(heddle_testing STATIC EXCLUDE_FROM_ALL src/testing/isa.cpp src/testing/main.cpp)
  target_include_directories(heddle_testing PUBLIC src/testing include ${CMAKE_BINARY_DIR}/include)
  target_link_libraries(heddle_testing PUBLIC GTest::gtest hwy::hwy PRIVATE heddle_flags)
endif()

# Adds the sources of the folders (relative to the project) to library `target`, their tests as program test_<name>.
function(heddle_add_folders target name)
  foreach(folder IN LISTS ARGN)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    set(tests ${sources})
    set(benches ${sources})
    list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cpp$")
    list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
    list(FILTER benches INCLUDE REGEX "_bench\\.cpp$")
    target_sources(${target} PRIVATE ${sources})
    set_property(GLOBAL APPEND PROPERTY HEDDLE_BENCH_SOURCES ${benches})
    list(APPEND all_tests ${tests})
  endforeach()
  if(HEDDLE_BUILD_TESTS AND all_tests)
    add_executable(test_${name} ${all_tests})
    target_link_libraries(test_${name} PRIVATE ${target} heddle_testing heddle_flags)
    target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(test_${name} PRIVATE HEDDLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    add_test(NAME ${name} COMMAND test_${name})
  endif()
endfunction()

# A library of whole folders; its tests are one program named like the last folder of each.
function(heddle_library target)
  add_library(${target})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:heddle_flags>)
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>
           $<INSTALL_INTERFACE:include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  foreach(folder IN LISTS ARGN)
    cmake_path(GET folder FILENAME name)
    heddle_add_folders(${target} ${name} ${folder})
  endforeach()
endfunction()

# The op family in src/ops/<family>, as part of library heddle.
function(heddle_op family)
  heddle_add_folders(heddle ${family} src/ops/${family})
endfunction()
