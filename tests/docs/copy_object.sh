#!/usr/bin/env bash
# copy_object.sh COMPILER ARGUMENT...: takes the object from the build folder HEDDLE_BUILT where that has one of the same name, else
# runs the compiler. For docs_test.py, which builds the Python module as a reader does and has no minutes for it.
set -euo pipefail
object='' previous=''
for argument in "$@"; do
  [ "$previous" != -o ] || object=$argument
  previous=$argument
done
case $object in
  *.o) [ ! -f "$HEDDLE_BUILT/$object" ] || exec cp "$HEDDLE_BUILT/$object" "$object" ;;
esac
exec "$@"
