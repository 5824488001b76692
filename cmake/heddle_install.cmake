# install comes here
