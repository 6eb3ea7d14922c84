"""What a run leaves behind: the table, alignment.json, the records, the logs in reprod_log's look, a picture and a page."""
