-- witness: never called. It is loaded with every write of a marker, and lives and dies with the server's process: a
-- server that has no marker and does not know it has just been started, one that knows it has lost its data.
return 'redlock'
