# cmake -D SOURCE=... -D OUTPUT=... -P heddle_commit.cmake: writes a source that holds the commit of the tree, where it holds another one.
# "unknown" where the tree is not the root of a git repository, as in a source archive and a wheel that is built from one.
set(HEDDLE_COMMIT "")
find_program(git git)
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 ${git} describe --always --exclude=* --abbrev=12 --dirty=+
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE HEDDLE_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT HEDDLE_COMMIT MATCHES "^[0-9a-f]+[+]?$")
  set(HEDDLE_COMMIT unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "commit.h"

namespace heddle::app {

const char* commit() { return "@HEDDLE_COMMIT@"; }

}  // namespace heddle::app
]])
